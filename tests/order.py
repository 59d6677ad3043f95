"""In which order tests are begun: what takes minutes first, so that no process works alone at the end of a run.

What is not named here takes seconds at most, and goes by its directory: with servers first, units last.
"""

from __future__ import annotations

from tests.groups import group_of

# Groups of tests that take more than about half a minute, the longest first.
LONG = (
    "tests/integration/pipeline/test_kills.py::test_targets_equal_the_source_whatever_is_killed",
    "install",
    "cassandra test_ddl_matrix",
    "spark",
    "cassandra test_kills",
    "cassandra test_snapshot",
    "cassandra test_cluster",
    "cassandra test_compare",
    "server of test_kafka",
    "server of test_kafka_progress",
    "spark with delta",
)
_DIRECTORIES = ("tests/integration/", "tests/simulation/", "tests/property/", "tests/contract/", "tests/unit/")


def rank(name: str) -> tuple[int, int]:
    """Tests with a smaller rank begin earlier; those with equal ranks stay as they are."""
    group = group_of(name)
    if group in LONG:
        return (0, LONG.index(group))
    places = [place for place, directory in enumerate(_DIRECTORIES) if name.startswith(directory)]
    return (1, places[0] if places else len(_DIRECTORIES))
