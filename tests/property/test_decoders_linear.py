"""The work of every decoder grows with its input and no faster, whatever the shape of the input.

Lines of Python are counted with the kernels as plain Python, which is exact. What one line hands to C, the processor's
time shows: for sixteen times the input it may be sixty-four times as much, where a square would be two hundred and
fifty-six. A busy machine makes neither of the two.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.decoder_shapes import SHAPES, Shape, run
from tests.work import SIZES, grows_too_fast, lines_of, processor_s

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src" / "penstock"
DECODER = re.compile(r"parse\w*|unseal|unpack|decompress|decode|from_json|read_(?:header|heading|entries|object|index)")
# Decoders that no shape reaches, and why they need none.
ELSEWHERE = {
    "capture/cassandra/segments/keys/jceks.py:unseal": "one key, whose rounds have a bound",
    "formats/avro.py:_DeltaDatum.decode": "goes once over what Program.decode gave it",
    "formats/program.py:parse": "of a schema of our own, once for each table",
    "log/segment.py:read_heading": "gives parse_heading the beginning of a file",
    "serve/client.py:Client.decode": "gives avro.decode what it got",
}
SMALL, LARGE = 1 << 10, 16 << 10
TIMES_MAX = 64
# A reader that takes less for a large input is no danger, and its time says nothing.
TIME_MIN_S = 0.05
TRIES = 5


@pytest.fixture(scope="module")
def counted() -> Any:
    """Lines of every shape at every size, and the functions that were entered, in a process of plain Python."""
    variables = {**os.environ, "PENSTOCK_NATIVE": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.work"], cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_lines_grow_with_the_input(counted: Any) -> None:
    assert set(counted["lines"]) == {shape.name for shape in SHAPES}
    assert {name: lines for name, lines in counted["lines"].items() if grows_too_fast(*lines)} == {}


def test_every_decoder_has_a_shape(counted: Any) -> None:
    entered = {
        (str(Path(file).relative_to(SOURCE)), name)
        for file, name in counted["functions"]
        if file.startswith(str(SOURCE))
    }
    missing = [f"{file}:{name}" for file, name in decoders() if (file, name) not in entered]
    assert sorted(missing) == sorted(ELSEWHERE)


def decoders() -> list[tuple[str, str]]:
    """The functions of the product that are called like decoders, by file and name."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        file = str(path.relative_to(SOURCE))
        if file.startswith(("sandbox/", "cli/")):
            continue
        tree = ast.parse(path.read_text("utf-8"))
        rooms: list[tuple[str, ast.Module | ast.ClassDef]] = [("", tree)]
        rooms += [(f"{one.name}.", one) for one in ast.walk(tree) if isinstance(one, ast.ClassDef)]
        for prefix, room in rooms:
            names = [one.name for one in room.body if isinstance(one, ast.FunctionDef)]
            found += [(file, prefix + name) for name in names if DECODER.fullmatch(name)]
    return found


def takes_too_long(shape: Shape) -> tuple[float, float] | None:
    """The times of a small and a large input when they break the law in every try; the least of each counts."""
    small, large = shape.make(SMALL), shape.make(LARGE)
    run(shape, small)
    least = float("inf"), float("inf")
    for _ in range(TRIES):
        least = (
            min(least[0], processor_s(lambda: run(shape, small))),
            min(least[1], processor_s(lambda: run(shape, large))),
        )
        if least[1] < TIME_MIN_S or least[1] <= TIMES_MAX * least[0]:
            return None
    return least


def test_what_is_handed_to_c_grows_with_the_input() -> None:
    assert {shape.name: times for shape in SHAPES if (times := takes_too_long(shape)) is not None} == {}


# The tests of the tests: decoders that are square, each in a way that one of the two laws sees.


def passes_all_before(data: bytes) -> int:
    """Counts lines from the beginning for each line."""
    total = 0
    for at, byte in enumerate(data):
        if byte == 10:
            for before in range(at):
                total += data[before] == 10
    return total


def passes_once(data: bytes) -> int:
    """Looks at each byte as often as it looks at any other: once."""
    total = 0
    for byte in data:
        total += byte
    return total


def copies_the_rest(data: bytes) -> int:
    """Takes one byte off the front at a time."""
    total = 0
    while data:
        total += data[0]
        data = data[1:]
    return total


def looks_for_an_end(data: bytes) -> int:
    """Looks for the end of every comment, to the end of the text."""
    return len(re.findall(r"/\*.*?\*/", data.decode(), re.DOTALL))


def test_a_square_decoder_is_found_by_its_lines() -> None:
    square = Shape("square", lambda size: b"\n" * (size // 8), passes_all_before)
    assert grows_too_fast(*(lines_of(square, size).lines for size in SIZES))
    linear = square._replace(read=passes_once)
    assert not grows_too_fast(*(lines_of(linear, size).lines for size in SIZES))


@pytest.mark.parametrize(
    "shape",
    [
        Shape("copies", lambda size: bytes(8 * size), copies_the_rest),
        Shape("regular", lambda size: b"/* " * size, looks_for_an_end),
    ],
    ids=lambda shape: shape.name,
)
def test_a_decoder_that_is_square_in_c_is_found_by_its_time(shape: Shape) -> None:
    assert takes_too_long(shape) is not None
