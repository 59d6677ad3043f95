"""What is imported is declared, by the package or by an extra, and what is missing is told in one sentence."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from penstock.errors import ExtraMissing
from penstock.system import extras
from tests.clean_environment import ROOT, USER_EXTRAS, closure, declared

SOURCES = sorted((ROOT / "src" / "penstock").rglob("*.py"))


def imported(tree: ast.Module) -> Iterator[str]:
    """The modules that a source imports when it runs, without those that only types are taken from."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            left += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
        left += ast.iter_child_nodes(node)


def foreign(path: Path) -> set[str]:
    """The modules of other packages that a source imports, without what is below them."""
    tops = {name.partition(".")[0] for name in imported(ast.parse(path.read_text("utf-8")))}
    if path.with_suffix(".pxd").exists():
        # Compiled, a kernel does not import it; uncompiled, it is given a module of ours.
        tops.discard("cython")
    return {name for name in tops if name not in sys.stdlib_module_names and name != "penstock"}


def test_whatever_is_imported_is_declared() -> None:
    brought = metadata.packages_distributions()
    direct = {canonicalize_name(one.name) for one in declared(())}
    optional = {module for modules in extras.PACKAGES.values() for module in modules}
    undeclared = {
        f"{path.relative_to(ROOT)}: {module}"
        for path in SOURCES
        for module in foreign(path)
        if module not in optional and not direct & {canonicalize_name(name) for name in brought.get(module, ())}
    }
    assert undeclared == set()


def test_every_extra_declares_the_packages_that_are_asked_for() -> None:
    assert set(extras.PACKAGES) == set(USER_EXTRAS)
    for extra, modules in extras.PACKAGES.items():
        come = closure(declared((extra,)))
        assert {canonicalize_name(package) for package in modules.values()} <= set(come), extra


def test_extras_that_are_here_are_no_trouble() -> None:
    extras.need("a test", USER_EXTRAS)


def test_what_is_missing_is_told_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.PACKAGES, "kafka", {"no_such_module": "no-such"})
    monkeypatch.setitem(extras.PACKAGES, "delta", {"no_such.module": "nor-this", "sys": "python"})
    with pytest.raises(ExtraMissing) as refusal:
        extras.need("a test", ("kafka", "delta", "spark"))
    wanted = 'a test needs nor-this and no-such, which are not installed: pip install "penstock[delta,kafka]"'
    assert str(refusal.value) == wanted
    with pytest.raises(ExtraMissing, match="needs no-such, which is not installed"):
        extras.need("a test", ("kafka",))
