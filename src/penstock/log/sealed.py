"""Small durable files: one JSON object with a checksum, replaced as a whole or not at all.

The log's identity, checkpoints and the retention note are such files. The text is one JSON object on one line whose
last member is `crc32`; the checksum is the CRC-32 of all bytes before that member's comma, so any language can check
it without knowing how the object was printed. The file is replaced by writing a second one, syncing it and renaming it
over the first: a crash leaves the old text or the new one. Later formats keep this seal, so that an old program can
tell a newer file from a damaged one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from penstock.log.names import TEMPORARY
from penstock.system import json_text
from penstock.system.checksum import crc32
from penstock.system.files import Files

# Larger than any file of this kind; a bigger one is foreign and is not read into memory.
BYTES_MAX = 64 << 10

_SEAL = re.compile(rb',"crc32":"([0-9a-f]{8})"\}\n')
_SEAL_BYTES = len(',"crc32":"00000000"}\n')


def seal(content: Mapping[str, Any]) -> bytes:
    """The text of the file; `content` must not be empty."""
    body = json.dumps(content, separators=(",", ":")).encode()[:-1]
    return body + b',"crc32":"%08x"}\n' % crc32(body)


def unseal(data: bytes, bytes_max: int = BYTES_MAX) -> dict[str, Any]:
    """The inverse. Raises ValueError that says what is wrong with the text."""
    if not data:
        raise ValueError("the file is empty")
    if len(data) > bytes_max:
        raise ValueError(f"the file is larger than {bytes_max} bytes")
    found = _SEAL.fullmatch(data, max(0, len(data) - _SEAL_BYTES))
    if found is None:
        raise ValueError("the text is truncated or has no checksum")
    if int(found[1], 16) != crc32(data[:-_SEAL_BYTES]):
        raise ValueError("the checksum does not match: the file was edited or damaged")
    try:
        content = json_text.parse(data)
    except ValueError:
        raise ValueError("the text is not JSON") from None
    if not isinstance(content, dict):
        raise ValueError("the text is not a JSON object")
    del content["crc32"]
    return content


def read(files: Files, path: str, bytes_max: int = BYTES_MAX) -> dict[str, Any]:
    """The content of a sealed file. Raises ValueError when it is damaged, OSError when it cannot be read."""
    file = files.open(path)
    try:
        return unseal(file.pread(bytes_max + 1, 0), bytes_max)
    finally:
        file.close()


def write(files: Files, directory: str, name: str, content: Mapping[str, Any]) -> None:
    """Make `content` the durable content of the file, or raise OSError and leave the old content or the new one."""
    path = f"{directory}/{name}"
    temporary = path + TEMPORARY
    # A leftover of a crash, or of a failed sync whose pages are not to be trusted.
    if files.exists(temporary):
        files.unlink(temporary)
    file = files.open(temporary, write=True, create=True)
    try:
        file.pwrite(seal(content), 0)
        file.sync()
    finally:
        file.close()
    files.rename(temporary, path)
    files.sync_directory(directory)
