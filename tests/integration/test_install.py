"""`pip install .` into a fresh environment: native kernels with a compiler, plain Python ones without.

Both installs build in one copy of the sources, so that Cython turns the kernels into C once; the one without a compiler
comes first and leaves nothing that is compiled. What Cython and the compiler made of sources that are still the same is
kept in .cache for the next run, as make and ccache do it.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import site
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
KEPT = ROOT / ".cache" / "install-test"
BUILD_INPUTS = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE")

ROUND_TRIP = """
import json, sys, tempfile
import penstock
from penstock import formats
from penstock.control import statements
from penstock.formats import avro
from penstock.model import types
from penstock.model.change import Set

schema = penstock.TableSchema(
    penstock.TableId("shop", "orders"),
    (penstock.Column("id", types.INT64, penstock.Role.PARTITION), penstock.Column("note", types.TEXT)),
)
written = [penstock.Change(penstock.Op.INSERT, {"id": n}, {"note": Set(f"n{n}")}, time=n) for n in range(100)]
with tempfile.TemporaryDirectory() as directory:
    path = directory + "/shop.orders"
    with penstock.TableLog.open(path, schema) as log:
        log.append(avro.encode(schema, written))
    with penstock.LogReader(path) as reader:
        read = [change for batch in reader.read() for change in avro.decode(batch)]
# The grammar is a file of its own, which an install could forget.
statements.parse("DROP CDC_LOG big ON shop.orders")
print(json.dumps({"native": formats.native, "same": read == written, "home": penstock.__file__}))
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of what an install needs, without anything that was built here but the C of unchanged kernels.

    Cython goes by the times of the files, which copies keep.
    """
    translated = KEPT / f"cython-{metadata.version('cython')}"
    copy = tmp_path_factory.mktemp("source")
    for name in BUILD_INPUTS:
        shutil.copy(ROOT / name, copy / name)
    built = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", copy / "src", ignore=built)
    if translated.exists():
        shutil.copytree(translated, copy / "build" / "cython")
    yield copy
    shutil.rmtree(translated, ignore_errors=True)
    shutil.copytree(copy / "build" / "cython", translated)


def install(source: Path, home: Path, **environment: str) -> tuple[Path, str]:
    """Install into a new environment at `home`; the dependencies come from the one that runs the tests.

    Gives where its programs are, and what was said while it was installed.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (packages,) = home.glob("lib/python3*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    command = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "--verbose"]
    command += ["--no-index", "--no-deps", "--no-build-isolation", "--ignore-installed", str(source)]
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PENSTOCK_NATIVE"}}
    done = subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return home / "bin", done.stdout + done.stderr


def answer(*command: str | Path) -> Any:
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PENSTOCK_NATIVE"}}
    done = subprocess.run([*map(str, command)], env=clean, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# Objects are kept by the source, the arguments but for places, which change with every run, the compiler and Python.
COMPILER = """#!/bin/sh
set -eu
kept=%s
object= source= flags=
for argument in "$@"; do
    case $argument in
    *.c) source=$argument ;;
    *.o) object=$argument ;;
    */*) ;;
    *) flags="$flags $argument" ;;
    esac
done
[ -n "$source" ] || exec cc "$@"
key=$({ cat "$source"; echo "$flags" %s; cc --version; } | sha256sum | cut -c1-64)
if [ ! -e "$kept/$key.o" ]; then
    cc "$@" -O0 -g0 -U_FORTIFY_SOURCE
    cp "$object" "$kept/$key.$$"
    mv "$kept/$key.$$" "$kept/$key.o"
fi
touch "$kept/$key.o"
cp "$kept/$key.o" "$object"
"""


def hasty_compiler(directory: Path, objects: Path) -> str:
    """The compiler of this machine without its optimiser, which takes minutes and whose work every other test runs.

    It compiles what it has not compiled before.
    """
    program = directory / "cc"
    program.write_text(COMPILER % (shlex.quote(str(objects)), shlex.quote(sys.version)))
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def objects() -> Iterator[Path]:
    """Where the compiler keeps what it made; what the test did not use goes."""
    place = KEPT / "objects"
    place.mkdir(parents=True, exist_ok=True)
    begin = time.time()
    yield place
    # File systems keep coarser times than the clock has.
    used = [file for file in place.iterdir() if file.stat().st_mtime > begin - 2]
    for file in set(place.iterdir()) - set(used) if used else ():
        file.unlink()


@pytest.mark.parametrize("native", [False, True], ids=["without a compiler", "with a compiler"])
def test_install_works(source: Path, objects: Path, tmp_path: Path, native: bool) -> None:
    home = tmp_path / "environment"
    compiler = hasty_compiler(tmp_path, objects) if native else "/bin/false"
    programs, told = install(source, home, CC=compiler, CXX=compiler)
    assert ("kernels were NOT compiled" in told) is not native
    trip = answer(programs / "python", "-c", ROUND_TRIP)
    assert trip["same"] is True
    assert trip["native"] is native
    assert Path(trip["home"]).is_relative_to(home)
    version = answer(programs / "penstock", "version", "--json")
    assert version["native"] is native
    assert answer(programs / "python", "-m", "penstock", "version", "--json") == version
    demo = [str(programs / "penstock"), "demo", "--rows", "30", "--no-spark"]
    started = subprocess.run(demo, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ("kernels are plain Python" in started.stderr) is not native
