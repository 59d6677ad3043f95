"""Environments that hold Penstock and what it declares, and nothing else, for tests of installing.

An environment is a virtual environment without pip, into which the packages are linked that the declared dependencies
come to, each with what it declares itself, at the versions of the environment that runs the tests. Nothing is
downloaded, and making one takes well under a second. What Penstock needs and does not declare is not there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# What a user installs; the others are for those who work on Penstock.
USER_EXTRAS = ("cassandra", "spark", "connect", "kafka", "delta", "iceberg")


def declared(extras: Iterable[str]) -> list[Requirement]:
    """What pyproject.toml declares for the package with these extras."""
    lines = list(PROJECT["dependencies"])
    for extra in extras:
        lines += PROJECT["optional-dependencies"][extra]
    found = [Requirement(line) for line in lines]
    own = [one for one in found if one.name == "penstock"]
    deeper = [part for one in own for part in declared(one.extras)]
    return [one for one in found if one.name != "penstock"] + deeper


def closure(requirements: Iterable[Requirement]) -> dict[str, metadata.Distribution]:
    """The packages, by name, that these come to with all that they need themselves."""
    found: dict[str, metadata.Distribution] = {}
    done: set[tuple[str, str]] = set()
    left = [(one, "") for one in requirements]
    while left:
        requirement, of_extra = left.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": of_extra}):
            continue
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in done:
                continue
            done.add((name, extra))
            found[name] = metadata.distribution(name)
            left += [(Requirement(line), extra) for line in found[name].requires or ()]
    return found


def make(home: Path, extras: Iterable[str]) -> Path:
    """A clean environment at `home` for the package with these extras; gives its Python."""
    extras = tuple(extras)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (packages,) = home.glob("lib/python3*/site-packages")
    for distribution in closure(declared(extras)).values():
        files = [PurePosixPath(str(file)) for file in distribution.files or ()]
        _link(files, Path(str(distribution.locate_file(""))), packages)
    (packages / "penstock").symlink_to(ROOT / "src" / "penstock")
    facts = packages / f"penstock-{PROJECT['version']}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: penstock\nVersion: {PROJECT['version']}\n")
    return home / "bin" / "python"


def variables_without_ours(**more: str) -> dict[str, str]:
    """The variables of this process without those that choose Python packages or settings of Penstock."""
    own = ("PYTHON", "PENSTOCK", "VIRTUAL_ENV", "SPARK", "PYSPARK")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(own)}, **more}


def _link(files: list[PurePosixPath], source: Path, target: Path) -> None:
    """Link what a package has into `target`; directories that several packages share are made and gone through."""
    below: dict[str, list[PurePosixPath]] = defaultdict(list)
    for file in files:
        # Scripts, and what was compiled, stand above or beside the package.
        if file.parts[0] not in ("..", "__pycache__"):
            below[file.parts[0]].append(PurePosixPath(*file.parts[1:]))
    for name, inner in below.items():
        whole = not (source / name).is_dir() or PurePosixPath("__init__.py") in inner
        if whole or name.endswith(".dist-info"):
            (target / name).symlink_to(source / name)
        else:
            (target / name).mkdir(exist_ok=True)
            _link([file for file in inner if file.parts], source / name, target / name)
