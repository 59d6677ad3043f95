"""A Spark that is too old is told in one sentence that says which version is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from penstock.errors import ToolMissing
from penstock.pipeline import spark_version
from penstock.pipeline.session import check_installed

# A PySpark without what 4.2 brought, as far as anything here looks.
OLD = "__version__ = '4.1.4'\n"


@pytest.mark.parametrize("version", ["4.0.5", "4.1.4", "3.5.9"])
def test_an_older_spark_is_refused_with_the_version_that_is_needed(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(ToolMissing, match=f"needs Spark 4.2, .*PySpark {version} is installed: pip install pyspark=="):
        spark_version.check()
    with pytest.raises(ToolMissing):
        check_installed()


def test_the_spark_that_is_here_will_do() -> None:
    spark_version.check()


def test_importing_the_source_on_an_older_spark_says_so(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text(OLD)
    text = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import pyspark; import penstock.pipeline.source.source"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith("penstock.errors.ToolMissing: Penstock needs Spark 4.2")
