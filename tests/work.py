"""How much work a reader does, counted and not timed: the lines of Python that are executed, and the processor's time.

Lines are exact: the same input gives the same number on any machine, however busy. They see nothing of what one line
hands to C, such as a regular expression or a copy of all that is left; the processor's time does, with a law that a
busy machine is far from breaking.

As a program it counts the lines of every shape with the kernels as plain Python, and writes them to standard output.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

from tests.decoder_shapes import SHAPES, Shape, run


class Counted(NamedTuple):
    """Lines that were executed, and the functions in which they are, as file and name."""

    lines: int
    functions: frozenset[tuple[str, str]]


def count(work: Callable[[], object]) -> Counted:
    """What is executed by some work, in every function that it calls."""
    lines = 0
    functions: set[tuple[str, str]] = set()

    def in_frame(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        if event == "line":
            lines += 1
        return in_frame

    def at_call(frame: FrameType, event: str, argument: Any) -> Any:
        functions.add((frame.f_code.co_filename, frame.f_code.co_qualname))
        return in_frame

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        work()
    finally:
        sys.settrace(before)
    return Counted(lines, frozenset(functions))


def processor_s(work: Callable[[], object]) -> float:
    """The time that the processor spends on some work in this thread, without the collector's looks at all else."""
    gc.collect()
    gc.disable()
    try:
        begin = time.thread_time()
        work()
        return time.thread_time() - begin
    finally:
        gc.enable()


# Sizes of an input in bytes: nearly nothing, some, and eight times as many.
NOTHING, SOME, FACTOR = 64, 1024, 8
SIZES = (NOTHING, SOME, FACTOR * SOME)
# A line for each byte more is linear. What grows with the logarithm as well is at most half as much again.
GROWTH_MAX = 1.5 * FACTOR
# So few lines say nothing.
LINES_MIN = 2000


def grows_too_fast(nothing: int, some: int, many: int) -> bool:
    """Whether work grows by more than the input does; what an input of nearly nothing costs is taken off."""
    return many > LINES_MIN and many - nothing > GROWTH_MAX * max(some - nothing, 1)


def lines_of(shape: Shape, size: int) -> Counted:
    """What a shape's input of this size takes."""
    data = shape.make(size)
    return count(lambda: run(shape, data))


def main() -> int:
    found: dict[str, Any] = {}
    functions: set[tuple[str, str]] = set()
    for shape in SHAPES:
        # What is built once, such as a parser, is not the input's.
        run(shape, shape.make(NOTHING))
        counted = [lines_of(shape, shape.scale * size) for size in SIZES]
        found[shape.name] = [one.lines for one in counted]
        functions = functions.union(*(one.functions for one in counted))
    json.dump({"lines": found, "functions": sorted(functions)}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
