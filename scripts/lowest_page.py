"""Writes docs/reference/lowest-versions.md, from what was installed and what pytest said: `lowest_page VERSIONS SAID`.

It runs in the environment that was tested, so that it needs nothing but the standard library.
"""

from __future__ import annotations

import platform
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "lowest-versions.md"
EXTRAS = ("cassandra", "spark", "kafka", "delta", "iceberg")
_HEAD = """# Lowest versions

<!-- Made by scripts/lowest_page.py; `make test-lowest` writes it. -->

`make test-lowest` installs the lowest version of every package that `pyproject.toml` declares, for itself and for the
extras {extras}, and runs the unit tests of settings, command line, HTTP
and listener, formats, filters, statements, change log, capture and pipeline with them. Tests on real servers run with
the versions of the lock alone. The last time, with Python {python}: {passed}.

| package | version |
| --- | --- |
"""


def page(versions: str, said: str) -> str:
    """The whole page. `versions` has a line `name==version` for each package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [*project["dependencies"], *(line for extra in EXTRAS for line in project["optional-dependencies"][extra])]
    names = {re.split(r"[^\w.-]", line)[0].lower() for line in lines}
    found = dict(line.strip().lower().split("==") for line in versions.splitlines() if "==" in line)
    passed = said.strip().splitlines()[-1].strip("= ")
    head = _HEAD.format(
        extras=", ".join(EXTRAS), python=platform.python_version(), passed=re.sub(r" in [\d.]+s.*", "", passed)
    )
    return head + "".join(f"| {name} | {found[name]} |\n" for name in sorted(names & found.keys()))


def main() -> int:
    versions, said = (Path(name).read_text("utf-8") for name in sys.argv[1:3])
    PAGE.write_text(page(versions, said), encoding="utf-8")
    sys.stdout.write(f"{PAGE.relative_to(ROOT)} is written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
