"""Which kernels are in use, and how a side is forced."""

from __future__ import annotations

import os
import subprocess
import sys
from array import array

import pytest

from penstock import formats
from penstock.formats import _columns, _encoder, _json_rows, _json_values, _kernel, _output, _rows, arrow_plan, program

_KERNELS = (_kernel, _columns, _rows, _encoder, _output, _json_values, _json_rows)


def _ask(value: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: text for name, text in os.environ.items() if name != "PENSTOCK_NATIVE"}
    if value is not None:
        environment["PENSTOCK_NATIVE"] = value
    code = "import penstock.formats as f; from penstock.formats import _kernel as k; print(f.native, k.compiled)"
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_native_tells_the_truth() -> None:
    assert {formats.native} == {module.compiled for module in _KERNELS}


def test_zero_forces_python() -> None:
    assert _ask("0").stdout.split() == ["False", "False"]


def test_one_forces_compiled_kernels_or_fails() -> None:
    asked = _ask("1")
    if _ask(None).stdout.split() == ["True", "True"]:
        assert asked.stdout.split() == ["True", "True"]
    else:
        assert "not compiled" in asked.stderr


def test_any_other_value_is_refused() -> None:
    assert "InvalidSetting" in _ask("yes").stderr


@pytest.mark.parametrize(
    "name",
    [
        "NULL",
        "BOOLEAN",
        "INT",
        "LONG",
        "FLOAT",
        "DOUBLE",
        "BYTES",
        "STRING",
        "FIXED",
        "ENUM",
        "ARRAY",
        "UNION",
        "RECORD",
        "NULLABLE",
        "BIG",
    ],
)
def test_the_kernels_and_the_compiler_of_programs_number_the_nodes_alike(name: str) -> None:
    assert getattr(_kernel, name) == getattr(program, name)


@pytest.mark.parametrize("name", ["STRUCT", "BITS", "WIDE", "VARIABLE", "LIST"])
def test_the_kernels_and_the_plans_number_the_layouts_alike(name: str) -> None:
    assert getattr(_columns, name) == getattr(arrow_plan, name)


def test_a_program_with_numbers_outside_its_tables_is_refused() -> None:
    def tables(kind: int, first: int, count: int, child: int) -> list[array[int]]:
        numbers = [array("i", [kind, 0]), array("i", [first, 0]), array("i", [count, 0]), array("i", [child])]
        return numbers + [array("q", [1, 1])] * 3

    _kernel.Program(*tables(12, 0, 1, 1))
    for bad in ((12, 0, 1, 2), (12, 0, 1, 0), (12, 0, 2, 1), (12, -1, 1, 1), (13, 0, 0, 1), (12, 5, 0, 1)):
        with pytest.raises(ValueError):
            _kernel.Program(*tables(*bad))


def test_a_program_whose_order_is_not_that_of_its_bytes_is_refused() -> None:
    def tables(kind: int, children: list[int], high: int) -> list[array[int]]:
        numbers = [array("i", [kind, 3, 3]), array("i", [0, 2, 2]), array("i", [2, 0, 0]), array("i", children)]
        return [*numbers, array("q", [0] * 3), array("q", [high, 0, 0]), array("q", [1] * 3)]

    _kernel.Program(*tables(12, [1, 2], 0))
    _kernel.Program(*tables(11, [1, 2], 1))
    for bad in ((12, [2, 1], 0), (12, [1, 1], 0), (11, [1, 2], 2)):
        with pytest.raises(ValueError):
            _kernel.Program(*tables(*bad))
