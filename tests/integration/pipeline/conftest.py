"""One Spark session for all tests of the pipeline: it takes many seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.pipeline.delta_spark import DeltaSpark, Sql, delta_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small local Spark with the source registered."""
    from penstock.pipeline.session import spark_session
    from penstock.pipeline.source.source import register

    own = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
    }
    with pytest.MonkeyPatch.context() as patch:
        # Spark's Python processes do not look into the working directory for what the tests bring.
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
        session = spark_session("penstock-tests", "local[2]", own)
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def with_delta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    """Another Spark, with Delta, in a process of its own, because a JVM that runs already takes no more jars."""
    with delta_spark(tmp_path_factory.mktemp("delta-spark")) as started:
        yield started


@pytest.fixture
def sql(with_delta: DeltaSpark) -> Sql:
    """Asks the Spark with Delta."""
    return with_delta.sql
