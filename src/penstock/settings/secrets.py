"""Secrets: where they may stand other than in the settings themselves, and who else can read the files that hold them.

Any text in a settings file may be a reference: `${file:/etc/penstock/kafka-password}`, `${env:KAFKA_PASSWORD}` or
`${command:pass show kafka}`, which stands for the content of the file, of the variable, or for what the program prints,
without the line break at its end. Only the whole of a value can be one. Errors name the reference's kind and place,
never what it stands for.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from penstock.errors import InvalidSetting

log = structlog.get_logger()

_REFERENCE = re.compile(r"\$\{(file|env|command):(.+)\}", re.DOTALL)
_BYTES_MAX = 64 << 10
_COMMAND_S = 30.0
# Files that were warned about, each once in the life of a process.
_warned: set[str] = set()


def resolve(value: Any, environ: Mapping[str, str]) -> Any:
    """The settings' tree with what its references stand for."""
    if isinstance(value, dict):
        return {name: resolve(part, environ) for name, part in value.items()}
    if isinstance(value, list):
        return [resolve(part, environ) for part in value]
    found = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    kind, place = found[1], found[2]
    if kind == "env":
        if place not in environ:
            raise InvalidSetting("the variable that a setting refers to is not set", variable=place)
        return environ[place]
    return read(Path(place)) if kind == "file" else _printed(place)


def is_reference(value: str) -> bool:
    """Whether a text is a reference that nobody has followed."""
    return _REFERENCE.fullmatch(value) is not None


def read(file: Path) -> str:
    """The secret that a file holds; the line break at its end is not part of it."""
    warn_if_open(file)
    try:
        with file.open("rb") as opened:
            return opened.read(_BYTES_MAX).decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InvalidSetting(f"cannot read the secret: {reason}", file=file) from error


def warn_if_open(file: Path) -> None:
    """Say once that a file with a secret can be read by every user of the machine."""
    try:
        open_to_all = file.stat().st_mode & 0o004
    except OSError:
        # Whoever reads it will say so.
        return
    if open_to_all and str(file) not in _warned:
        _warned.add(str(file))
        log.warning("every user of this machine can read a secret", file=str(file), mend=f"chmod 600 {file}")


def _printed(command: str) -> str:
    """What a program prints. No shell is asked, and its error output is the operator's to see."""
    words = shlex.split(command)
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own command, without a shell
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=_COMMAND_S,
            check=True,
        )
        return done.stdout[:_BYTES_MAX].decode().rstrip("\r\n")
    except subprocess.CalledProcessError as error:
        raise InvalidSetting(f"the command for a secret ended with {error.returncode}", command=words[0]) from None
    except subprocess.TimeoutExpired:
        raise InvalidSetting(f"the command for a secret took longer than {_COMMAND_S} s", command=words[0]) from None
    except (OSError, IndexError, UnicodeDecodeError) as error:
        raise InvalidSetting("the command for a secret cannot be run", command=command.partition(" ")[0]) from error
