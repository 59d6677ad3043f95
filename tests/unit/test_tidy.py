"""The house rules, as tests: sizes, names, docstrings, prints, hosts, and the public interface."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).parent.parent.parent
SOURCES = sorted((ROOT / "src" / "penstock").rglob("*.py"))
MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
BANNED_NAMES = {"util", "utils", "common", "helper", "helpers", "manager", "base", "misc"}
# Written so that the patterns do not match themselves.
BANNED_TEXT = {
    "a package registry's host": r"p[y]pi\.|p[y]thonhosted\.|n[p]mjs\.|repo\d?\.m[a]ven|"
    r"c[r]ates\.io|([p]roxy|[s]um)\.golang\.|registry\.y[a]rnpkg",
    "a path of one machine": r"(?<![\w.])/(work|root|home/\w+|Users/\w+|opt/wheels)/",
    "a file beside the repository": r"\.\./shared\b",
    "the number of an issue": r"\b[Ii]ssue #?\d",
}
TEXT_MAX_BYTES = 2 << 20


def tracked_files() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return [ROOT / name for name in listing.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return {name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}


def test_modules_have_a_ceiling() -> None:
    long = {name_of(path): n for path in SOURCES if (n := len(path.read_text("utf-8").splitlines())) > MODULE_LINES_MAX}
    assert not long


def test_functions_fit_a_screen(trees: dict[str, ast.Module]) -> None:
    long = [
        f"{name}:{node.lineno} {node.name} has {lines} lines"
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert not long


def test_modules_and_packages_are_named_after_something() -> None:
    banned = [
        name_of(path) for path in SOURCES if BANNED_NAMES & {part.strip("_") for part in path.with_suffix("").parts}
    ]
    assert not banned


def test_every_module_says_what_it_is_for(trees: dict[str, ast.Module]) -> None:
    bare = [name for name, tree in trees.items() if len(ast.get_docstring(tree) or "") < 20]
    assert not bare


def test_only_the_command_line_prints(trees: dict[str, ast.Module]) -> None:
    prints = [
        f"{name}:{node.lineno}"
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
        if not name.startswith("src/penstock/cli/")
    ]
    assert not prints


def test_only_the_package_declares_public_names(trees: dict[str, ast.Module]) -> None:
    declaring = [
        name
        for name, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets)
    ]
    # The settings stand in several modules and are imported from one place; the checksum is one function of whichever
    # library is at hand, passed on.
    assert declaring == [
        f"src/penstock/{name}" for name in ("__init__.py", "settings/__init__.py", "system/checksum.py")
    ]


def test_no_tracked_file_names_a_registry_or_a_machine() -> None:
    found = []
    for path in tracked_files():
        data = path.read_bytes()
        if b"\0" in data[:4096] or len(data) > TEXT_MAX_BYTES:
            continue
        text = data.decode("utf-8")
        for what, pattern in BANNED_TEXT.items():
            for match in re.finditer(pattern, text):
                found.append(f"{name_of(path)}:{text.count(chr(10), 0, match.start()) + 1} {what}: {match.group()}")
    assert not found


def test_no_test_is_skipped_or_sleeps() -> None:
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in {"skip", "skipif", "xfail", "importorskip", "sleep"}:
                owner = ast.unparse(node.value)
                if owner in {"pytest", "pytest.mark", "time"}:
                    found.append(f"{name_of(path)}:{node.lineno} {owner}.{node.attr}")
    assert not found


def test_whoever_silences_a_security_rule_says_why() -> None:
    silenced = re.compile(r"#\s*noqa: [A-Z0-9, ]*\bS\d{3}(?!.* - \w)")
    bare = [
        f"{name_of(path)}:{number}"
        for place in ("src", "scripts", "bench", "examples")
        for path in sorted((ROOT / place).rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if silenced.search(line)
    ]
    assert not bare


def test_public_names_are_the_agreed_ones() -> None:
    assert penstock.__all__ == sorted(penstock.__all__)
    assert set(penstock.__all__) == {
        "Change",
        "ChangeBatch",
        "Column",
        "Deleted",
        "Delivered",
        "LogReader",
        "Op",
        "PenstockError",
        "Position",
        "RecordType",
        "Records",
        "Role",
        "Set",
        "Settings",
        "Sink",
        "Subscription",
        "TableId",
        "TableLog",
        "TableSchema",
        "Task",
        "Type",
        "Writer",
        "dead_letter",
        "decode",
        "encode",
        "register",
    }


@pytest.mark.parametrize("name", penstock.__all__)
def test_public_name_is_the_class_or_function_of_that_name(name: str) -> None:
    value = getattr(penstock, name)
    assert isinstance(value, type) == name[0].isupper()
    assert value.__name__ == name
    assert name in dir(penstock)


def test_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'TabelLog'"):
        _ = penstock.TabelLog


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, penstock; sys.exit(bool({'pyarrow', 'pydantic', 'rich', 'typer'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert penstock.__version__ == project["version"]


def test_every_page_is_in_the_navigation_and_every_entry_exists() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r"[\w/-]+\.md", text))
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    # Decisions are listed on their own page.
    decisions = {page for page in pages if page.startswith("decisions/") and not page.endswith("README.md")}
    overview = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    assert listed == pages - decisions
    assert {f"decisions/{name}" for name in re.findall(r"\]\(([\w-]+\.md)\)", overview)} == decisions


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            file = target.split("#", 1)[0]
            if file and "://" not in file and not file.startswith("mailto:") and not (page.parent / file).exists():
                broken.append(f"{name_of(page)}: {target}")
    assert not broken
