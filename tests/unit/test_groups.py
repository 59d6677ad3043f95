"""Tests of one node are shared out together."""

from __future__ import annotations

import pytest

from tests.groups import group_of

HERE = "tests/integration/cassandra"


@pytest.mark.parametrize(
    ("name", "group"),
    [
        (f"{HERE}/test_matrix.py::test_folded[4.1-simple]", "cassandra 4.1"),
        (f"{HERE}/test_decode_command.py::test_printed[4.1]", "cassandra 4.1"),
        (f"{HERE}/test_matrix.py::test_folded[4.1-encrypted-simple]", "cassandra 4.1-encrypted"),
        (f"{HERE}/test_matrix.py::test_folded[5.0-format-8-MixedCase]", "cassandra 5.0-format-8"),
        (f"{HERE}/test_cluster.py::test_log_of_each_node_is_complete[0-counts]", "cassandra test_cluster"),
        (f"{HERE}/test_demo.py::test_demo", "cassandra test_demo"),
        ("tests/integration/test_commit_log_referee.py::test_a[none]", "peers of test_commit_log_referee"),
        ("tests/integration/test_commit_log_writer_referee.py::test_b[9]", "peers of test_commit_log_writer_referee"),
        ("tests/integration/test_install.py::test_install_works[with a compiler]", "install"),
        ("tests/integration/pipeline/test_spark_connect.py::test_c", "spark with delta"),
        ("tests/integration/pipeline/test_delta_spark.py::test_d", "spark with delta"),
        ("tests/unit/test_groups.py::test_a[4.1]", "tests/unit/test_groups.py::test_a[4.1]"),
    ],
)
def test_group_is_that_of_the_node(name: str, group: str) -> None:
    assert group_of(name) == group
