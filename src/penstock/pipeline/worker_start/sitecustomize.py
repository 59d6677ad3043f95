"""Python runs this module at its own start, in the processes that Spark starts: it makes them start quickly.

Spark puts an archive with a copy of PySpark's sources before everything else on the path of its Python processes. From
an archive Python compiles every module again in each process, which takes a second of CPU; a query starts half a dozen.
Where the archive belongs to the PySpark that is installed for this Python, it is left out, and the compiled modules of
the installation are used. Nothing else is imported here, for this runs in every process.
"""

import os
import sys

_ARCHIVE = "pyspark.zip"


def without_archives(paths: list[str]) -> list[str]:
    """The path without the archives, and the jars, of a PySpark that is installed on the same path."""
    # Links are followed on both sides: left on the path, this module would find itself again and again.
    dropped = {os.path.dirname(os.path.realpath(__file__))}
    real = {os.path.realpath(path) for path in paths}
    for path in paths:
        # The archive is <site>/pyspark/python/lib/pyspark.zip.
        lib, name = os.path.split(os.path.realpath(path))
        home = os.path.dirname(os.path.dirname(lib))
        if name == _ARCHIVE and os.path.dirname(home) in real and os.path.isfile(os.path.join(home, "__init__.py")):
            dropped |= {lib, os.path.join(home, "jars")}
    return [path for path in paths if not {os.path.realpath(path), os.path.dirname(os.path.realpath(path))} & dropped]


if __name__ == "sitecustomize":
    sys.path[:] = without_archives(sys.path)
    # The module of this name that would have been found without this one.
    own = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")
    except ImportError:
        sys.modules["sitecustomize"] = own
