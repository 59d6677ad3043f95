"""How Spark's Python processes start: from the installed PySpark, and with nothing that they do not need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.pipeline.worker_start import sitecustomize
from penstock.pipeline.worker_start.sitecustomize import without_archives
from tests.many_logs import write

OWN = str(Path(sitecustomize.__file__).parent)


def installed(site: Path) -> list[str]:
    """A PySpark as pip installs it, and what Spark puts on the path of its processes."""
    lib, jars = site / "pyspark" / "python" / "lib", site / "pyspark" / "jars"
    for directory in (lib, jars):
        directory.mkdir(parents=True)
    (site / "pyspark" / "__init__.py").touch()
    return [str(lib / "pyspark.zip"), str(lib / "py4j-src.zip"), str(jars / "spark-core.jar")]


def run(code: str, *path: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.strip()


def test_the_archives_of_the_installed_pyspark_are_left_out(tmp_path: Path) -> None:
    archives = installed(tmp_path / "site")
    path = [*archives, OWN, "/more", str(tmp_path / "site")]
    assert without_archives(path) == ["/more", str(tmp_path / "site")]


@pytest.mark.parametrize("missing", ["path", "package"])
def test_the_archives_of_a_pyspark_that_is_elsewhere_stay(tmp_path: Path, missing: str) -> None:
    archives = installed(tmp_path / "site")
    path = [*archives, "/more", *([] if missing == "path" else [str(tmp_path / "site")])]
    if missing == "package":
        (tmp_path / "site" / "pyspark" / "__init__.py").unlink()
    assert without_archives(path) == path


def test_python_runs_it_and_then_the_one_that_was_there_before(tmp_path: Path) -> None:
    archives = installed(tmp_path / "site")
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import sys\nsys.was_there = True\n")
    code = "import sys; print(getattr(sys, 'was_there', False), any('pyspark' in path for path in sys.path))"
    assert run(code, *archives, OWN, str(other), str(tmp_path / "site")) == "True False"
    assert run(code, *archives, OWN, str(tmp_path / "site")) == "False False"


def test_it_ends_where_the_environment_is_reached_through_a_link(tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    linked.symlink_to(OWN)
    code = "import sys; print('sitecustomize' in sys.modules, any('linked' in path for path in sys.path))"
    assert run(code, str(linked)) == "True False"


def test_reading_imports_neither_pandas_nor_settings_of_other_parts(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, 3)
    code = f"""
import sys
from penstock.pipeline.source.source import PenstockDataSource
for given in ({{"table": "shop.orders"}}, {{"shape": "runs"}}):
    made = PenstockDataSource({{"path": {str(tmp_path)!r}, **given}})
    reader = made.reader(made.schema())
    print(sum(batch.num_rows for one in reader.partitions() for batch in reader.read(one)))
print(sorted({{"pandas", "penstock.settings.cassandra", "penstock.settings.pipeline"}} & set(sys.modules)))
"""
    assert run(code).split("\n") == ["3", "1", "[]"]
