"""User functions from the settings."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import InvalidSetting
from penstock.filters.functions import Functions, takes


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "penstock_test_udfs.py"
    path.write_text("LIMIT = 5\ndef over(value):\n    return value > LIMIT\n")
    yield path
    sys.modules.pop("penstock_test_udfs", None)


@pytest.mark.usefixtures("module")
def test_functions_are_imported_and_found_whatever_their_case() -> None:
    functions = Functions.load({"IsOver": "penstock_test_udfs:over", '"IsOver"': "builtins:len"})
    assert functions["isover"](6) is True
    assert functions["IsOver"]("abc") == 3
    assert sorted(functions) == ["IsOver", "isover"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("penstock_test_missing:f", "cannot import module penstock_test_missing: ModuleNotFoundError: "),
        ("penstock_test_udfs:under", "module penstock_test_udfs has no under"),
        ("penstock_test_udfs:LIMIT", "penstock_test_udfs:LIMIT cannot be called"),
        ("penstock_test_udfs", "'penstock_test_udfs' does not name a function; write \"module:callable\""),
        (":f", "does not name a function"),
    ],
)
@pytest.mark.usefixtures("module")
def test_setting_that_names_no_function_is_refused(path: str, message: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        Functions.load({"f": path})
    assert message in str(caught.value)
    assert str(caught.value).endswith("(setting functions.f)")


def test_module_that_fails_when_imported_is_a_bad_setting(module: Path) -> None:
    module.write_text("1 / 0\n")
    with pytest.raises(InvalidSetting, match="cannot import module penstock_test_udfs: ZeroDivisionError"):
        Functions.load({"f": "penstock_test_udfs:over"})


def test_two_spellings_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="two functions have the name myudf"):
        Functions({"MyUdf": len, "myudf": len})


def test_number_of_arguments_is_known_where_python_tells() -> None:
    assert takes(lambda a, b: None, 2)
    assert not takes(lambda a, b: None, 3)
    assert takes(lambda a, *rest: None, 9)
    assert takes(lambda a, b=1: None, 1)
    assert takes(dict, 7)
