"""The versions on the page about compatibility are those that the tests run and the package declares."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from penstock.capture.cassandra.segments.segment import FORMATS
from penstock.sandbox import cassandra_jars
from scripts import lowest_page
from testkit import apicurio_registry, elasticsearch_server, kafka_broker, opensearch_server
from tests.integration.cassandra.variants import VARIANTS
from tests.integration.pipeline import delta_spark

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "operate" / "compatibility.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKED = dict(
    re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
)


def rows() -> dict[str, list[str]]:
    """The cells of every row, by the first."""
    lines = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| ")]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines}


ROWS = rows()


def test_every_cassandra_that_the_tests_run_is_on_the_page() -> None:
    for version in cassandra_jars.VERSIONS:
        number = ".".join(map(str, cassandra_jars.number_of(version)))
        formats = {str(variant.log_format) for variant in VARIANTS if variant.version == version}
        shown, tested, *_ = ROWS[number]
        assert set(re.findall(r"\d+", shown)) == formats
        assert version in tested
    assert {variant.log_format for variant in VARIANTS} == set(FORMATS)


@pytest.mark.parametrize(
    ("row", "version"),
    [
        ("Kafka", kafka_broker.VERSION),
        ("Kafka", f"confluent-kafka {LOCKED['confluent-kafka']}"),
        ("schema registry", apicurio_registry.VERSION),
        ("Elasticsearch", elasticsearch_server.PRODUCT.version),
        ("OpenSearch", opensearch_server.PRODUCT.version),
        ("Spark", LOCKED["pyspark"]),
        ("Delta", f"deltalake {LOCKED['deltalake']}"),
        ("Delta", next(part[2] for part in delta_spark._JARS if part[1].startswith("delta-spark"))),
        ("Iceberg", f"pyiceberg {LOCKED['pyiceberg']}"),
        ("Parquet, JSON lines", f"pyarrow {LOCKED['pyarrow']}"),
    ],
)
def test_what_is_tested_is_what_the_tests_take(row: str, version: str) -> None:
    assert version in ROWS[row][0]


@pytest.mark.parametrize(("package", "row"), [("confluent-kafka", "Kafka"), ("pyiceberg", "Iceberg")])
def test_bounds_are_those_that_are_declared(package: str, row: str) -> None:
    declared = next(
        line for lines in PROJECT["optional-dependencies"].values() for line in lines if line.startswith(package)
    )
    least, beyond = re.findall(r"[\d.]+", declared.split(">=", 1)[1])
    assert f"{package} before {least}, or {beyond} and later" in ROWS[row][2]


def test_pythons_are_those_that_are_declared() -> None:
    least, beyond = re.findall(r"3\.(\d+)", PROJECT["requires-python"])
    tested, should, refused = ROWS["Python"]
    assert [*re.findall(r"3\.(\d+)", tested), *re.findall(r"3\.(\d+)", should)] == [
        str(minor) for minor in range(int(least), int(beyond))
    ]
    assert refused == f"before 3.{least}, and 3.{beyond}"


def test_the_driver_is_the_locked_one() -> None:
    assert f"scylla-driver {LOCKED['scylla-driver']} is tested" in PAGE


def test_the_lowest_versions_that_were_tried_are_the_lowest_that_are_declared() -> None:
    tried = dict(re.findall(r"^\| ([\w-]+) \| ([\d.]+) \|$", lowest_page.PAGE.read_text("utf-8"), re.MULTILINE))
    lines = list(PROJECT["dependencies"])
    for extra in lowest_page.EXTRAS:
        lines += PROJECT["optional-dependencies"][extra]
    declared = {}
    for requirement in map(Requirement, lines):
        (declared[requirement.name],) = [one.version for one in requirement.specifier if one.operator in (">=", "==")]
    assert {name: Version(version) for name, version in tried.items()} == {
        name: Version(version) for name, version in declared.items()
    }
