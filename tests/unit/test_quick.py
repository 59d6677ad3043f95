"""The quick tests cover every room, and what is left out of them, or begun first, is there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import order, quick
from tests.groups import group_of

ROOT = Path(__file__).parent.parent.parent
ROOMS = sorted(
    path.stem
    for path in (ROOT / "src/penstock").iterdir()
    if (path / "__init__.py").exists() or (path.suffix == ".py" and not path.stem.startswith("__"))
)


def functions(file: Path) -> set[str]:
    return {node.name for node in ast.parse(file.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)}


def imported(file: Path) -> set[str]:
    """The modules that a test file names in its imports."""
    out: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            out |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            out |= {alias.name for alias in node.names}
    return out


@pytest.mark.parametrize("room", ROOMS)
def test_quick_tests_of_a_room_import_it(room: str) -> None:
    own = [*(ROOT / "tests/unit" / room).rglob("test_*.py"), *(ROOT / "tests/unit").glob("test_*.py")]
    quickly = [
        file
        for file in own
        if any(quick.is_quick(f"{file.relative_to(ROOT)}::{one}") for one in functions(file) if one.startswith("test_"))
    ]
    name = f"penstock.{room}"
    assert any(one == name or one.startswith(f"{name}.") for file in quickly for one in imported(file))


def test_nothing_with_a_server_is_quick() -> None:
    assert not quick.is_quick("tests/integration/test_agent.py::test_a")
    assert not quick.is_quick("tests/property/test_decoders_fuzzed.py::test_a[b::c]")
    assert not quick.is_quick(f"{quick.SLOW[0]}[with a parameter]")


@pytest.mark.parametrize("name", quick.SLOW)
def test_what_is_left_out_is_there(name: str) -> None:
    file, function = name.split("::")
    assert function in functions(ROOT / file)


def test_light_properties_are_there() -> None:
    assert [name for name in quick.PROPERTIES if not (ROOT / name).is_file()] == []


def test_long_groups_are_those_of_tests_that_are_there() -> None:
    files = sorted((ROOT / "tests/integration").rglob("test_*.py"))
    names = [f"{file.relative_to(ROOT)}::{one}" for file in files for one in functions(file) if one.startswith("test_")]
    assert set(order.LONG) <= {group_of(name) for name in names}


def test_long_ones_begin_first_and_units_last() -> None:
    names = [
        "tests/unit/test_quick.py::test_a",
        "tests/property/test_fold.py::test_b",
        "tests/integration/test_agent.py::test_c",
        "tests/integration/test_install.py::test_install_works[with a compiler]",
        order.LONG[0],
    ]
    assert sorted(names, key=order.rank) == names[::-1]
