"""The guide "Subscribe", run as it stands: every program in it, the client for Node among them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the guide's programs, named as their first lines say."""
    page = (ROOT / "docs" / "guides" / "subscribe.md").read_text(encoding="utf-8")
    for code in re.findall(r"```(?:python|javascript)\n(.*?)```", page, re.DOTALL):
        name = re.match(r"(?:#|//) (\w+\.\w+)", code)
        assert name is not None
        (tmp_path / name.group(1)).write_text(code, encoding="utf-8")
    run(tmp_path, sys.executable, "make_log.py")
    return tmp_path


def run(place: Path, *command: str, code: int = 0) -> str:
    done = subprocess.run(command, cwd=place, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@contextmanager
def serving(place: Path) -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "serve_log.py"], cwd=place, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        while not server.stdout.readline().startswith("listening on"):
            assert server.poll() is None
        try:
            yield
        finally:
            server.kill()


def test_python_program_reads_each_change_once(place: Path) -> None:
    assert run(place, sys.executable, "read_log.py") == "insert 0 tea\ninsert 1 coffee\ninsert 2 cocoa\n"
    assert run(place, sys.executable, "read_log.py") == ""


def test_avro_library_reads_the_file(place: Path) -> None:
    assert run(place, sys.executable, "read_file.py") == "insert 0\ninsert 1\ninsert 2\n"


def test_retention_and_loss_as_shown(place: Path) -> None:
    assert run(place, sys.executable, "tidy_log.py") == "() ()\n"
    assert run(place, sys.executable, "accept_loss.py") == ""


def test_python_client_over_the_socket(place: Path) -> None:
    with serving(place):
        assert run(place, sys.executable, "listen_log.py") == "insert 0\ninsert 1\ninsert 2\n"


@contextmanager
def node(place: Path, subscription: str = "search") -> Iterator[Iterator[str]]:
    """The lines that the client for Node prints, until it is killed."""
    command = ["node", "listen.js", "logs/listener.socket", "shop", "orders", subscription]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        try:
            yield iter(client.stdout)
        finally:
            client.kill()


def until_durable(lines: Iterator[str], last: str) -> list[str]:
    """The ids of the changes that came until the change at `last` was acknowledged durably."""
    found = []
    for line in lines:
        words = line.split()
        if words[0] != "durable":
            found.append(words[2])
        elif words[1] == last:
            return found
    raise AssertionError("the client ended")


def test_node_client_reads_acknowledges_and_resumes(place: Path) -> None:
    code = "from penstock import LogReader; print(LogReader('logs/shop.orders').end())"
    with serving(place):
        end = run(place, sys.executable, "-c", code).strip()
        with node(place) as lines:
            assert until_durable(lines, end) == ['{"id":0}', '{"id":1}', '{"id":2}']
            # More is appended while it listens.
            run(place, sys.executable, "make_log.py")
            middle = run(place, sys.executable, "-c", code).strip()
            assert until_durable(lines, middle) == ['{"id":0}', '{"id":1}', '{"id":2}']
        run(place, sys.executable, "make_log.py")
        end = run(place, sys.executable, "-c", code).strip()
        # The killed client's name may be in use for another moment.
        for _ in range(50):
            with node(place) as lines:
                first = next(lines, None)
                if first is not None:
                    assert first.split()[2] == '{"id":0}'
                    assert until_durable(lines, end) == ['{"id":1}', '{"id":2}']
                    break
        else:
            pytest.fail("the name was never freed")


def test_node_client_is_told_why_it_is_refused(place: Path) -> None:
    with serving(place):
        errors = run(place, "node", "listen.js", "logs/listener.socket", "shop", "nothing", "search", code=1)
        assert errors.startswith("InvalidInput there is no such log")
