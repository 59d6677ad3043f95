"""`penstock run`: its children are this Penstock, whatever lies in the working directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.pipeline.session import _workers

# Modules of the standard library that every command, and every worker of Spark, imports early.
COMMON = ("grp", "random", "signal", "socket", "json", "typing")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A working directory with modules that leave a mark when they are run."""
    place = tmp_path / "hostile"
    place.mkdir()
    for name in (*COMMON, "sitecustomize"):
        (place / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\n")
    return place


def test_code_in_the_working_directory_does_not_run_in_children(tmp_path: Path, hostile: Path) -> None:
    config = tmp_path / "penstock.toml"
    # There is no node here, so the agent ends at once.
    config.write_text(f'[cassandra]\nconfig_file = "{tmp_path}/missing.yaml"\n[agent]\ndirectory = "{tmp_path}/data"\n')
    command = [sys.executable, "-P", "-m", "penstock", "run", str(config)]
    ended = subprocess.run(command, cwd=hostile, capture_output=True, text=True, timeout=300, check=False)
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    assert ended.returncode, "the agent cannot have begun"
    assert "missing.yaml" in ended.stderr


def test_code_in_the_working_directory_does_not_run_in_workers(
    tmp_path: Path, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark starts its Python processes with `-m` and with the variables that it was started with."""
    monkeypatch.setenv("PYTHONPATH", "")
    before = dict(os.environ)
    with _workers():
        # It imports grp, as Spark's daemon does by way of shutil.
        command = [sys.executable, "-m", "tarfile", "--help"]
        subprocess.run(command, cwd=hostile, capture_output=True, timeout=300, check=True)
    assert not (tmp_path / "ran").exists()
    assert dict(os.environ) == before
