"""Which Spark will do, and the sentence for one that will not.

Since 4.2 a source in Python may bound its batches and knows what is available now; both are used for every batch.
"""

from __future__ import annotations

import sys

from penstock.errors import ToolMissing

_LEAST = (4, 2)
_PINNED = "4.2.0"


def check() -> None:
    """Raise ToolMissing when the PySpark that is here is too old. Whether there is one at all is asked elsewhere."""
    found = _found()
    if found is not None and tuple(int(part) for part in found.split(".")[:2]) < _LEAST:
        raise ToolMissing(
            f"Penstock needs Spark 4.2, where sources in Python can bound their batches; PySpark {found} is installed: "
            f"pip install pyspark=={_PINNED}"
        )


def _found() -> str | None:
    # Spark's workers have it imported, and looking through the installed packages would cost them milliseconds.
    if (imported := sys.modules.get("pyspark")) is not None:
        return str(getattr(imported, "__version__", "")) or None
    from importlib import metadata

    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return None
