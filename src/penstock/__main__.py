"""The `penstock` command, also as `python -m penstock`: where a process begins.

The commands are imported in `main`, so that a variable that stops even this, as PENSTOCK_NATIVE can, is told in one
line.
"""

from __future__ import annotations

import sys

from penstock.errors import PenstockError
from penstock.system import umask


def main() -> int:
    """Run one command and return its exit code."""
    umask.close()
    try:
        from penstock.cli.main import main as command
    except PenstockError as error:
        from penstock.cli import output

        output.report(error)
        return 1
    return command()


if __name__ == "__main__":
    sys.exit(main())
