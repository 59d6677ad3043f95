"""How the command begins and ends: its version, bad variables, and hints that fit the case."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import pytest

from penstock.cli import output
from penstock.cli.main import main
from penstock.deliver.choice import make_sinks
from penstock.errors import InvalidSetting, PenstockError, SparkFailed, StorageError
from penstock.settings import Settings
from penstock.settings.pipeline import PipelineSettings
from penstock.system import extras, kernels


def failing_sink(_options: object) -> object:
    """A user's sink that cannot be made."""
    raise ZeroDivisionError("of its own")


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_version_is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {metadata.version('penstock')}\n"


@pytest.mark.parametrize(("variable", "value"), [("PENSTOCK_LOG_LEVEL", "chatty"), ("PENSTOCK_NATIVE", "7")])
def test_a_bad_variable_is_told_in_one_line(variable: str, value: str) -> None:
    command = [sys.executable, "-m", "penstock", "version"]
    done = subprocess.run(command, env={**os.environ, variable: value}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert variable in done.stderr.splitlines()[0]
    assert "Traceback" not in done.stderr


def test_listening_nowhere_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["listen", str(tmp_path / "nowhere"), "--path", str(tmp_path / "socket")]) == 1
    assert "no such directory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["log", "ls"], ["cassandra", "decode"], ["cassandra", "decode", "--verify"]])
def test_no_permission_is_not_no_such_directory(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def denied(path: object, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        for call in ("scandir", "stat"):
            patched.setattr(os, call, denied)
        code = main([*command, str(tmp_path)])
    assert code == 1
    told = capsys.readouterr().err
    assert "Permission denied" in told
    assert "no such" not in told


def test_a_taken_port_has_a_hint_about_ports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text("a secret of some length, for nobody")
    token.chmod(0o600)
    with taken_port() as port:
        settings = tmp_path / "settings.toml"
        settings.write_text(f'[listener]\nport = {port}\ntoken_file = "{token}"\n')
        assert main(["listen", str(tmp_path), "--config", str(settings)]) == 1
    told = capsys.readouterr().err
    assert "port" in re.findall("hint: (.*)", told)[0]
    assert "directory exists" not in told


def test_a_refused_directory_keeps_its_hint() -> None:
    assert "directory exists" in StorageError("refused", directory="data").advice
    assert "contact_points" not in SparkFailed("Spark did not start").advice


def test_an_own_sink_that_fails_is_told_with_its_setting() -> None:
    own = PipelineSettings(sinks=("mine",), own_sinks={"mine": f"{__name__}:failing_sink"})
    sys.modules.setdefault(__name__, sys.modules[failing_sink.__module__])
    with pytest.raises(InvalidSetting, match=r"failed: ZeroDivisionError \(setting pipeline\.own_sinks\.mine\)"):
        make_sinks(Settings(pipeline=own))
    missing = PipelineSettings(sinks=("mine",), own_sinks={"mine": "no_such_module:Sink"})
    with pytest.raises(InvalidSetting, match=r"setting pipeline\.own_sinks\.mine"):
        make_sinks(Settings(pipeline=missing))


def test_plain_kernels_are_warned_of_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernels, "all_compiled", lambda: False)
    assert main(["demo", "--rows", "30", "--no-spark"]) == 0
    told = capsys.readouterr().err
    assert "kernels are plain Python" in told
    assert "apt-get install gcc" in told


def test_two_drivers_in_one_environment_are_noted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extras, "installed_drivers", lambda: ["scylla-driver 3.29", "cassandra-driver 3.30"])
    assert main(["cassandra", "decode", str(tmp_path), "--cassandra-yaml", str(tmp_path / "none")]) == 1
    assert "scylla-driver 3.29 and cassandra-driver 3.30 are both installed" in capsys.readouterr().err


def test_advice_is_the_hint_unless_the_place_tells_more(capsys: pytest.CaptureFixture[str]) -> None:
    output.report(InvalidSetting("wrong"))
    assert InvalidSetting.hint in capsys.readouterr().err
    assert PenstockError("anything").advice == ""
