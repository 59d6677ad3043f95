"""One clean environment per extra, holding only what it declares, in which every command is started.

A command whose extras are there does its work, or fails at what is really missing: a node, a broker. One whose extras
are not there says so in one sentence with the line that installs them, before anything begins.

Commands of one environment are forked from one process that has imported the command line, which takes most of the time
of a start; those that stay, and those that start Spark, are started alone.
"""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
import typer.main

from penstock.cli.main import app
from penstock.system.extras import PACKAGES
from tests import clean_environment
from tests.command_starts import CommandStarts

SETTINGS = """
[agent]
directory = "captured"
[cassandra]
cdc_raw_directory = "cdc_raw"
schema_from = "{schema_from}"
contact_points = {contact_points}
port = 1
connect_timeout_s = 1
[http]
port = 0
[pipeline]
name = "test"
logs = ["logs"]
sinks = ["{sink}"]
checkpoint_directory = "checkpoint"
retries = {retries}
[files]
directory = "files"
[delta]
directory = "delta"
[iceberg]
warehouse = "iceberg"
[kafka]
bootstrap_servers = ["127.0.0.1:1"]
"""
LOGS = """
import penstock
from penstock.formats import avro
from penstock.model import types
from penstock.model.change import Set

schema = penstock.TableSchema(
    penstock.TableId("shop", "orders"),
    (penstock.Column("id", types.INT64, penstock.Role.PARTITION), penstock.Column("note", types.TEXT)),
)
with penstock.TableLog.open("logs/shop.orders", schema) as log:
    log.append(avro.encode(schema, [penstock.Change(penstock.Op.INSERT, {"id": 1}, {"note": Set("one")}, time=1)]))
"""


@dataclass(frozen=True)
class Start:
    """One start of a command: what it needs, and what it then prints and ends with."""

    arguments: str
    prints: str
    code: int = 0
    needs: tuple[str, ...] = ()
    # Whether it is run with its extras, too.
    runs: bool = True
    # It runs until it is told to end.
    stays: bool = False


# What works with no extra at all.
PLAIN = (
    Start("version", "native"),
    Start("demo --rows 60 --no-spark", "all 60 acknowledged writes are in the logs"),
    Start("log ls logs", "shop.orders"),
    Start("log stat logs/shop.orders", "shop.orders"),
    Start("log cat logs/shop.orders", "id=1"),
    Start("log tail logs/shop.orders", "id=1"),
    Start("log verify logs", "sound"),
    Start("log retain logs", "0 files deleted"),
    Start("log erase logs --table shop.orders --key '{\"id\": 99}'", "0 changes erased"),
    Start("subscriptions ls logs", "no subscriptions"),
    Start("subscriptions drop logs none", "has a subscription 'none'", code=1),
    Start("subscriptions rewind logs none --to begin", "has a subscription 'none'", code=1),
    Start("subscriptions reset logs none --to begin", "has a subscription 'none'", code=1),
    Start("config show files.toml", "checkpoint_directory"),
    Start("config check files.toml", "delivers logs to files"),
    Start('sql "DROP CDC_LOG none ON shop.orders" --dir logs', "shop.orders", code=1),
    Start("listen logs --path socket", "listening on", stays=True),
    Start("agent run files.toml", "capturing", stays=True),
    Start("agent parked files.toml", "nothing is parked"),
    Start("agent reprocess-errors files.toml", "no segment has failed"),
    Start("agent snapshot files.toml shop.orders", "asked for a snapshot of shop.orders"),
    Start("cassandra decode cdc_raw", "no commit-log segment", code=1),
    Start("cassandra schema cdc_raw", "no commit-log segment", code=1),
    Start("dead-letters ls files.toml", "no dead letters"),
    Start("dead-letters show files.toml 1", "not the id", code=1),
    Start("dead-letters replay files.toml --all", ""),
    Start("dead-letters remove files.toml --all", "0 dead letters removed"),
    Start("pipeline retry shop.orders files.toml", "no trouble", code=1),
    Start("pipeline erase files.toml --table shop.orders --key '{\"id\": 99}'", "no checkpoint", code=1),
)
# What needs extras: with them it works, or fails at the node or broker that is not there.
NEEDING = (
    Start("agent run node.toml", "no CQL connection", code=1, needs=("cassandra",)),
    Start("run node.toml", "the agent ended with 1", code=1, needs=("cassandra", "spark")),
    Start("demo --cassandra --version 1.2.3", "1.2.3", code=1, needs=("cassandra",)),
    Start("cassandra decode cdc_raw --contact-point 127.0.0.1:1", "no CQL", code=1, needs=("cassandra",)),
    Start("cassandra schema --contact-point 127.0.0.1:1", "no CQL", code=1, needs=("cassandra",)),
    Start("pipeline run files.toml --once", "1 record of 1 table delivered", needs=("spark",)),
    Start("pipeline run kafka.toml --once", "the brokers do not answer", code=1, needs=("kafka", "spark")),
    Start("pipeline run delta.toml --once", "1 record of 1 table delivered", needs=("delta", "spark")),
    Start("pipeline run iceberg.toml --once", "1 record of 1 table delivered", needs=("iceberg", "spark")),
    # With its extras it runs in the tests of the demo.
    Start("demo --rows 60 --spark", "", needs=("delta", "spark"), runs=False),
    Start("bootstrap begun.toml", "shop.orders: 1 row", needs=("delta", "spark")),
    Start("compare logs lake --table shop.orders", "no Delta table here", code=1, needs=("delta",)),
    Start("compare logs iceberg:shop.orders --table shop.orders", "iceberg", code=1, needs=("iceberg",)),
    Start("compare cassandra lake --table shop.orders", "which cluster?", code=1, needs=("cassandra", "delta")),
)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A change log of one change, which commands are given."""
    home = tmp_path_factory.mktemp("logs")
    subprocess.run([sys.executable, "-c", LOGS], cwd=home, check=True)
    return home / "logs"


@pytest.fixture
def place(logs: Path, tmp_path: Path) -> Path:
    """A working directory with settings for every sink, a log, and an empty cdc_raw."""
    home = tmp_path / "place"
    (home / "cdc_raw").mkdir(parents=True)
    shutil.copytree(logs, home / "logs")
    for sink in ("files", "kafka", "delta", "iceberg"):
        # On a busy machine Spark's processes may not answer each other in time at first; a broker never does here.
        text = SETTINGS.format(sink=sink, schema_from="log", contact_points="[]", retries=0 if sink == "kafka" else 5)
        (home / f"{sink}.toml").write_text(text)
    (home / "begun.toml").write_text((home / "delta.toml").read_text().replace('"checkpoint"', '"begun"'))
    (home / "node.toml").write_text(
        SETTINGS.format(sink="files", schema_from="driver", contact_points='["127.0.0.1"]', retries=0)
    )
    return home


@pytest.fixture
def commands(place: Path) -> Iterator[Callable[[Path], Commands]]:
    """The commands of an environment, by its Python; all that was started is ended after the test."""
    with ExitStack() as stack:
        yield lambda python: stack.enter_context(Commands(python, place))


class Commands:
    """Runs starts in one environment, in `place`."""

    def __init__(self, python: Path, place: Path) -> None:
        # As text: services, too, tell in one line what ends them.
        self._variables = {**clean_environment.variables_without_ours(), "PENSTOCK_LOG_FORMAT": "text"}
        self._forked = CommandStarts(python, place, self._variables)
        self._python = python
        self._place = place

    def __enter__(self) -> Self:
        self._forked.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._forked.__exit__(*error)

    def outcome(self, start: Start, *, alone: bool = False) -> subprocess.CompletedProcess[str]:
        """What the command printed, and its code; one that stays is ended once it has printed what it should."""
        arguments = shlex.split(start.arguments)
        if not start.stays and not alone:
            return self._forked.run(arguments)
        with subprocess.Popen(
            [str(self._python), "-m", "penstock", *arguments],
            cwd=self._place,
            env=self._variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            first = ""
            if start.stays:
                assert process.stdout is not None
                first = process.stdout.readline()
                process.send_signal(signal.SIGTERM)
            rest, errors = process.communicate()
        return subprocess.CompletedProcess(arguments, process.returncode, first + rest, errors)

    def check_works(self, start: Start) -> None:
        done = self.outcome(start, alone="spark" in start.needs)
        told = done.stdout + done.stderr
        # On a busy machine a process of Spark's may fail in its own words, and the batch is done again.
        assert "spark" in start.needs or "Traceback" not in told, told
        assert "not installed" not in told, told
        assert start.prints in told, f"{start.arguments}: {told}"
        assert done.returncode == start.code, f"{start.arguments}: {told}"

    def check_refused(self, start: Start, lacking: set[str], *, alone: bool) -> None:
        before = sorted(self._place.rglob("*"))
        done = self.outcome(start, alone=alone)
        line, hint = done.stderr.splitlines()
        assert done.returncode == 1, done.stderr
        assert done.stdout == ""
        assert line.startswith("penstock: ")
        assert line.endswith(f'not installed: pip install "penstock[{",".join(sorted(lacking))}]"')
        assert hint.startswith("  hint: ")
        for package in (package for extra in lacking for package in PACKAGES[extra].values()):
            assert package in line
        assert sorted(self._place.rglob("*")) == before


def test_every_command_is_started() -> None:
    leaves: set[str] = set()

    def walk(command: object, path: tuple[str, ...]) -> None:
        below = getattr(command, "commands", None)
        if below is None:
            leaves.add(" ".join(path))
        else:
            for name, inner in below.items():
                walk(inner, (*path, name))

    walk(typer.main.get_command(app), ())
    started = {start.arguments for start in (*PLAIN, *NEEDING)}
    assert [leaf for leaf in leaves if not any(f"{text} ".startswith(f"{leaf} ") for text in started)] == []


def test_without_any_extra_what_needs_none_works(commands: Callable[[Path], Commands], tmp_path: Path) -> None:
    plain = commands(clean_environment.make(tmp_path / "environment", ()))
    for start in PLAIN:
        plain.check_works(start)


@pytest.mark.parametrize(
    "extras",
    [(), ("cassandra",), ("spark",), ("kafka",), ("delta",), ("iceberg",)],
    ids=lambda extras: extras[0] if extras else "none",
)
def test_a_command_whose_extra_is_missing_says_so_before_anything_begins(
    extras: tuple[str, ...], commands: Callable[[Path], Commands], tmp_path: Path
) -> None:
    with_extras = commands(clean_environment.make(tmp_path / "environment", extras))
    # With another extra that it does not need, a command says the same as with none.
    lacking = {
        start: missing
        for start in NEEDING
        if (missing := set(start.needs) - set(extras)) and (not extras or missing != set(start.needs))
    }
    for number, (start, missing) in enumerate(lacking.items()):
        with_extras.check_refused(start, missing, alone=number == 0)


@pytest.mark.parametrize("needs", sorted({start.needs for start in NEEDING}), ids="+".join)
def test_a_command_works_with_what_its_extras_declare(
    needs: tuple[str, ...], commands: Callable[[Path], Commands], tmp_path: Path
) -> None:
    with_extras = commands(clean_environment.make(tmp_path / "environment", needs))
    for start in NEEDING:
        if start.needs == needs and start.runs:
            with_extras.check_works(start)


def test_a_client_of_spark_connect_has_what_it_imports(tmp_path: Path) -> None:
    python = clean_environment.make(tmp_path / "environment", ("connect",))
    modules = "import pyspark.sql.connect.session, penstock.pipeline.source.source"
    subprocess.run([python, "-c", modules], env=clean_environment.variables_without_ours(), cwd=tmp_path, check=True)
