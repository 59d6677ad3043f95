"""Ways in which others have lost changes between a log and its targets, each as a test that we do not.

Each test names in words what was lost, and where that is told. Crashes are exceptions that end a process which Spark's
part is played for (tests/query_stand_in.py); what the process had on disk stays. docs/reference/losses.md lists all of
them.
"""

from __future__ import annotations

import errno
import json
import shutil
import socket
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from penstock.capture.status import AgentStatus
from penstock.deliver.delta.sink import DeltaSink
from penstock.deliver.files import sink as files_sink
from penstock.deliver.files.sink import FilesSink
from penstock.deliver.lakehouse.storage import Storage
from penstock.errors import ChangesLost, CorruptCheckpoint, PenstockError, PositionAhead, Retry, StorageError
from penstock.fold import bucket, manifest
from penstock.fold.state import StateStore
from penstock.formats import avro
from penstock.log import retention, sealed
from penstock.log.checkpoint import Checkpoint as LogCheckpoint
from penstock.log.checkpoint import load_all
from penstock.log.reader import LogReader
from penstock.log.refusal import exhausted
from penstock.log.table_log import TableLog
from penstock.model import types as t
from penstock.model.change import Change, Deleted, Marker, Op, Origin, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.pipeline.checkpoint import Checkpoint
from penstock.pipeline.dead_letters import DeadLetterStore
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.source.planner import Planner
from penstock.serve.http import HttpServer
from penstock.serve.log_blocks import LogBlocks
from penstock.settings import (
    HttpSettings,
    LogSettings,
    PipelineSettings,
    RecordType,
    RetentionSettings,
    Settings,
)
from penstock.settings.sinks import DeltaSettings, FileCompression, FileFormat, FilesSettings
from penstock.system.files import OsFiles
from tests.query_stand_in import Crash, PickySink, Query

NODES = ("n1", "n2", "n3")
PEOPLE = TableSchema(
    TableId("shop", "people"),
    (Column("id", t.INT64, Role.PARTITION), Column("name", t.TEXT), Column("age", t.INT32)),
    source="cassandra",
)
SMALL_FILES = LogSettings(file_bytes_max=8192)

Step = tuple[Any, str]
# What a batch does, in this order.
STEPS: dict[str, Step] = {
    "time of the batch": (Checkpoint, "batch_time"),
    "tasks": (Pipeline, "_outcomes"),
    "dead letters": (DeadLetterStore, "add"),
    "table": (DeltaSink, "commit"),
    "files": (FilesSink, "commit"),
    "state": (StateStore, "commit"),
    "wake": (Checkpoint, "wake_at"),
    "Spark's commit": (Query, "note_done"),
    "subscription": (Planner, "commit"),
}


def settings(home: Path, rows_per_batch: int = 1000, *, picky: bool = False) -> Settings:
    for node in NODES:
        (home / node).mkdir(exist_ok=True)
    return Settings(
        pipeline=PipelineSettings(
            name="test",
            checkpoint_directory=home / "checkpoint",
            logs=tuple(str(home / node) for node in NODES),
            sinks=("delta", "files", *(["picky"] if picky else [])),
            own_sinks={"picky": "tests.query_stand_in:PickySink"},
            buckets=2,
            rows_per_batch=rows_per_batch,
        ),
        delta=DeltaSettings(directory=home / "lake"),
        files=FilesSettings(
            directory=home / "files",
            format=FileFormat.JSON,
            compression=FileCompression.NONE,
            record=RecordType.CHANGE,
        ),
    )


def put(home: Path, node: str, *changes: Change, schema: TableSchema = PEOPLE) -> str:
    """Log changes on one node, in one block; the log's directory."""
    directory = str(home / node / f"{schema.table.keyspace}.{schema.table.table}")
    with TableLog.open(directory, schema, settings=SMALL_FILES, node=node) as log:
        log.append(avro.encode(schema, list(changes)))
    return directory


def person(number: int, time: int, *, position: int | None = None, op: Op = Op.INSERT, **cells: Any) -> Change:
    origin = Origin(file="log", position=time if position is None else position)
    given = {name: Deleted() if value is ... else Set(value) for name, value in cells.items()}
    marker = Marker() if op in (Op.INSERT, Op.SNAPSHOT) else None
    return Change(op, {"id": number}, given, time=time, marker=marker, origin=origin)


def rows(home: Path) -> dict[int, tuple[str | None, int | None]]:
    """The table's rows, as another reader sees them."""
    found = QueryBuilder().register("t", DeltaTable(str(home / "lake/shop/people"))).execute("SELECT * FROM t")
    listed = [row for batch in found for row in pa.record_batch(batch).to_pylist()]
    assert len({row["id"] for row in listed}) == len(listed)
    return {row["id"]: (row["name"], row.get("age")) for row in listed}


def times(home: Path) -> list[int]:
    """The write times of the changes in the files: with one change per time, its identity."""
    files = [file for file in sorted((home / "files").glob("shop.*/*.json*")) if not file.name.startswith(".")]
    return sorted(json.loads(line)["time"] for file in files for line in file.read_text().splitlines())


def subscribed(directory: str) -> Any:
    """How far the pipeline's subscription in a log has come; None while there is none."""
    found = [one for one in load_all(OsFiles(), directory).values() if isinstance(one, LogCheckpoint)]
    return found[0].position if found else None


def crash_at(patched: pytest.MonkeyPatch, step: Step, *, after: bool) -> None:
    """End the process before or after this step of the batch."""
    owner, method = step
    original: Callable[..., Any] = getattr(owner, method)

    def crash(*given: Any, **named: Any) -> None:
        if after:
            original(*given, **named)
        raise Crash

    patched.setattr(owner, method, crash)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_progress_is_never_committed_before_the_record_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    """Offsets were committed before the records were (DBZ-1766); a slot moved between a checkpoint's two halves."""
    query = Query(settings(tmp_path, picky=True), monkeypatch)
    put(tmp_path, "n1", person(1, 10, name="a"), person(PickySink.refused, 20, name="b"))
    query.start().run()
    log = put(tmp_path, "n1", person(1, 30, name="c"), person(PickySink.refused, 40, name="d"))
    put(tmp_path, "n3", person(1, 30, name="c"), person(3, 50, name="e"))
    before = subscribed(log)
    with monkeypatch.context() as patched:
        crash_at(patched, STEPS[step], after=after)
        with pytest.raises(Crash):
            query.run()
    if step != "subscription":
        # Nothing was let go in the log before Spark had noted that the batch is done.
        assert subscribed(log) == before
    if query.done == 1:
        assert times(tmp_path) == [10, 20, 30, 40, 50]
        assert rows(tmp_path)[3] == ("e", None)
    query.start().run().stop()
    assert times(tmp_path) == [10, 20, 30, 40, 50]
    assert rows(tmp_path) == {1: ("c", None), PickySink.refused: ("d", None), 3: ("e", None)}
    letters = list(DeadLetterStore(tmp_path / "checkpoint/dead-letters").letters())
    assert len(letters) == 2
    assert subscribed(log) >= before


def test_steps_of_a_batch_come_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What DBZ-1766 had the wrong way round: the place is kept last of all."""
    made: list[str] = []
    for name, (owner, method) in STEPS.items():
        original: Callable[..., Any] = getattr(owner, method)

        def noted(*given: Any, _name: str = name, _original: Callable[..., Any] = original, **named: Any) -> Any:
            out = _original(*given, **named)
            made.append(_name)
            return out

        monkeypatch.setattr(owner, method, noted)
    put(tmp_path, "n1", person(PickySink.refused, 10, name="a"))
    query = Query(settings(tmp_path, picky=True), monkeypatch).start()
    made.clear()
    query.run()
    assert made == list(STEPS)


@pytest.mark.parametrize("limit", range(1, 8))
def test_rows_that_share_one_position_are_not_skipped_by_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Several rows had one log position, and a restart skipped the rest of them (debezium/dbz#1554)."""
    together = [person(number, 10 + number, position=7, name="x") for number in range(7)]
    put(tmp_path, "n1", *together)
    query = Query(settings(tmp_path, limit), monkeypatch)
    # A new process for each batch.
    while query.start().step():
        pass
    assert times(tmp_path) == [10 + number for number in range(7)]
    assert len(rows(tmp_path)) == 7


def test_resume_goes_on_exactly_behind_every_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that skips what was seen before was never switched off, for 22 hours (DBZ-5031)."""
    for number in range(6):
        put(tmp_path, "n1", person(number, 10 + number, name="x"), person(100 + number, 100 + number, name="y"))
    wanted = [*range(10, 16), *range(100, 106)]
    for limit in range(1, 13):
        home = tmp_path / f"limit {limit}"
        home.mkdir()
        for node in NODES:
            shutil.copytree(tmp_path / node, home / node) if (tmp_path / node).exists() else None
        query = Query(settings(home, limit), monkeypatch)
        query.start().step()
        # The position is in the middle: of a block, at its end, or at the log's end, where nothing is left.
        query.start().run()
        assert times(home) == wanted
        assert not query.start().step()


def test_resume_position_that_the_log_does_not_have_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A position beyond the log, or before what is left of it, must not be taken for any other (DBZ-5031)."""
    log = put(tmp_path, "n1", person(1, 10, name="x"))
    shutil.copytree(log, tmp_path / "older copy")
    put(tmp_path, "n1", person(2, 20, name="x"))
    query = Query(settings(tmp_path), monkeypatch)
    query.start().run()
    shutil.rmtree(log)
    shutil.copytree(tmp_path / "older copy", log)
    with pytest.raises(PositionAhead):
        query.start().step()
    shutil.rmtree(log)
    # A log that was made anew is another log; of the old one nobody knows what it still held.
    put(tmp_path, "n2", person(3, 30, name="x"))
    with pytest.raises((ChangesLost, CorruptCheckpoint)):
        query.start().step()


def test_positions_and_times_that_go_backwards_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions were taken to rise, and what came with a lower one was passed over (DBZ-2329)."""
    random = Random(5)
    changes = [person(number % 9, 1000 - number, position=1000 - number, name=f"v{number}") for number in range(60)]
    for node in NODES:
        mine = random.sample(changes, len(changes))
        for at in range(0, len(mine), 4):
            put(tmp_path, node, *mine[at : at + 4])
    query = Query(settings(tmp_path, 7), monkeypatch)
    while query.start().step():
        pass
    assert times(tmp_path) == sorted(1000 - number for number in range(60))
    # The greatest write time wins, whatever came last.
    assert rows(tmp_path) == {number: (f"v{number}", None) for number in range(9)}


@pytest.mark.parametrize("part", ["plans", "state"])
@pytest.mark.parametrize("batches", [1, 3])
def test_checkpoint_that_has_lost_a_part_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, batches: int
) -> None:
    """Without a stored offset, reading went on at the newest change instead of the last one done (DBZ-1730)."""
    query = Query(settings(tmp_path), monkeypatch)
    for number in range(batches):
        put(tmp_path, "n1", person(number, 10 + number, name="a"))
        query.start().run()
    shutil.rmtree(tmp_path / "checkpoint" / part)
    with pytest.raises(CorruptCheckpoint, match="not of one moment"):
        query.start()


@pytest.mark.parametrize("part", ["plans", "state"])
def test_part_of_a_checkpoint_that_comes_from_an_older_copy_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """The same loss, by a restore: what the parts say must be of one moment (DBZ-1730)."""
    query = Query(settings(tmp_path), monkeypatch)
    put(tmp_path, "n1", person(1, 10, name="a"))
    query.start().run()
    shutil.copytree(tmp_path / "checkpoint" / part, tmp_path / "older copy")
    for number in (2, 3):
        put(tmp_path, "n1", person(number, 10 * number, name="a"))
        query.start().run()
    shutil.rmtree(tmp_path / "checkpoint" / part)
    shutil.copytree(tmp_path / "older copy", tmp_path / "checkpoint" / part)
    with pytest.raises(CorruptCheckpoint, match="not of one moment"):
        query.start()


def test_new_checkpoint_begins_with_the_oldest_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same loss: with nothing stored at all, the beginning is the log's beginning (DBZ-1730)."""
    made = settings(tmp_path)
    put(tmp_path, "n1", person(1, 10, name="a"))
    Query(made, monkeypatch).start().run().stop()
    put(tmp_path, "n1", person(2, 20, name="b"))
    for target in ("checkpoint", "lake", "files"):
        shutil.rmtree(tmp_path / target)
    Query(made, monkeypatch).start().run()
    assert times(tmp_path) == [10, 20]


def test_state_does_not_grow_beyond_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that is looked at after the commit is one that has been passed."""
    made = settings(tmp_path)
    put(tmp_path, "n1", person(1, 10, name="a"))
    Query(made, monkeypatch).start().run().stop()
    store = StateStore(str(tmp_path / "checkpoint/state"), 2)
    before, runs = store.size(), sorted((tmp_path / "checkpoint/state/runs").iterdir())
    # Less than the settings allow, so that a test need not write a million bytes.
    limited = made.model_copy(update={"merge": made.merge.model_copy(update={"state_bytes_max": before[1] + 500})})
    put(tmp_path, "n1", person(2, 20, name="b" * 1000))
    query = Query(limited, monkeypatch).start()
    with pytest.raises(StorageError, match="state_bytes_max"):
        query.run()
    query.stop()
    assert (store.committed, store.size()) == (0, before)
    assert sorted((tmp_path / "checkpoint/state/runs").iterdir()) == runs
    assert times(tmp_path) == [10]
    Query(made, monkeypatch).start().run().stop()
    assert times(tmp_path) == [10, 20]


def wider(version: int, *columns: Column) -> TableSchema:
    return TableSchema(PEOPLE.table, (PEOPLE.columns[0], *columns), version=version, source="cassandra")


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
def test_no_event_is_skipped_around_a_schema_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Events after a dropped column, or after CDC was switched off and on, were skipped (Debezium for Cassandra)."""
    name, age, city = Column("name", t.TEXT), Column("age", t.INT32), Column("city", t.TEXT)
    put(tmp_path, "n1", person(1, 10, name="a", age=1), person(2, 20, name="b", age=2))
    put(tmp_path, "n1", person(3, 30, name="c", city="x"), schema=wider(2, name, city))
    put(tmp_path, "n1", person(4, 40, name="d"), person(1, 50, name="e"), schema=wider(3, name))
    put(tmp_path, "n1", person(5, 60, name="f", age=6, city="y"), schema=wider(4, name, age, city))
    # Another node has not heard of it all yet.
    put(tmp_path, "n2", person(2, 20, name="b", age=2), person(6, 70, name="g", age=7))
    put(tmp_path, "n2", person(5, 60, name="f", age=6, city="y"), schema=wider(4, name, age, city))
    query = Query(settings(tmp_path, limit), monkeypatch)
    while query.start().step():
        pass
    assert times(tmp_path) == [10, 20, 30, 40, 50, 60, 70]
    assert {number: found[0] for number, found in rows(tmp_path).items()} == dict(
        zip(range(1, 7), ["e", "b", "c", "d", "f", "g"], strict=True)
    )


@pytest.mark.parametrize("starting", ["latest", "1000"])
def test_where_to_start_counts_at_the_first_start_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starting: str
) -> None:
    """The filter of the start was applied again when a job was restored (FLINK-39198)."""
    put(tmp_path, "n1", person(1, 10, name="old"), person(2, 20, name="old"))
    query = Query(settings(tmp_path), monkeypatch, starting=starting)
    query.start().run()
    put(tmp_path, "n1", person(3, 2000, name="new"))
    query.start().run()
    # It is older than the time to start at, and came later.
    put(tmp_path, "n1", person(4, 30, name="late"))
    put(tmp_path, "n2", person(5, 40, name="a node that joined"))
    query.start().run()
    assert times(tmp_path) == [30, 40, 2000]


def test_snapshot_and_stream_are_merged_and_a_repeated_snapshot_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes beside a snapshot were lost (flink-cdc#784), and its parts came twice after a failure (#1061)."""
    streamed = [
        person(1, 100, name="a"),
        person(2, 110, name="b"),
        person(1, 120, op=Op.UPDATE, age=5),
        Change(Op.DELETE, {"id": 2}, time=130, origin=Origin(file="log", position=130)),
        person(3, 140, name="c"),
    ]
    # The row as it was read at three moments; what is deleted by then is not in it.
    snapshots = [
        [person(1, 100, op=Op.SNAPSHOT, name="a"), person(2, 110, op=Op.SNAPSHOT, name="b")],
        [
            Change(
                Op.SNAPSHOT, {"id": 1}, {"name": Set("a", time=100), "age": Set(5, time=120)}, time=120,
                marker=Marker(time=100), origin=Origin(file="snapshot", position=1),
            )
        ],
    ]  # fmt: skip
    for seed in range(6):
        home = tmp_path / str(seed)
        home.mkdir()
        random = Random(seed)
        query = Query(settings(home, 2), monkeypatch)
        parts = [[change] for change in streamed] + snapshots + snapshots
        random.shuffle(parts)
        for part in parts:
            put(home, random.choice(NODES), *part)
            if random.random() < 0.5:
                query.start().step()
        while query.start().step():
            pass
        assert rows(home) == {1: ("a", 5), 3: ("c", None)}
        counted = Counter(times(home))
        # The files have each change, and each row that a snapshot read, once.
        assert all(counted[change.time] <= 2 for change in streamed if change.time is not None)
        assert {100, 110, 120, 130, 140} == set(counted)


@pytest.mark.parametrize("step", STEPS)
def test_retention_waits_for_the_pipeline_wherever_it_has_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """What had not been streamed yet was removed (yugabyte-db#14846, and its barrier that was lifted too early)."""
    query = Query(settings(tmp_path, 20), monkeypatch)
    query.start()
    log = ""
    for number in range(30):
        log = put(tmp_path, "n1", *(person(number, 10 * number + at, name="x" * 400) for at in range(10)))
    for _ in range(3):
        with monkeypatch.context() as patched:
            crash_at(patched, STEPS[step], after=True)
            if step != "dead letters":
                with pytest.raises(Crash):
                    query.step()
        retention.apply(log, RetentionSettings(keep_s=0))
        query.start().step()
        retention.apply(log, RetentionSettings(keep_s=0))
    query.run().stop()
    retention.apply(log, RetentionSettings(keep_s=0))
    assert times(tmp_path) == list(range(300))
    with LogReader(log) as reader:
        assert len(reader.numbers()) == 1


class LosingProxy:
    """Stands between a reader and an agent; of every three connections one breaks when the agent has answered."""

    def __init__(self, agent: tuple[str, int]) -> None:
        self._agent = agent
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.requests: list[str] = []
        self.lost: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> LosingProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with client, socket.create_connection(self._agent) as agent:
                request = client.recv(1 << 16)
                what = request.split(b"?")[0].split(b" HTTP")[0].decode()
                self.requests.append(what)
                # One request per connection, so that the end of the answer is the end of the connection.
                agent.sendall(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
                answer = b"".join(iter(lambda agent=agent: agent.recv(1 << 16), b""))  # type: ignore[misc]
                if len(self.requests) % 3:
                    client.sendall(answer)
                else:
                    self.lost.append(what)


def test_lost_answer_of_an_agent_skips_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever went on after a lost answer went on too far (OpenLogReplicator#324)."""
    log = ""
    for number in range(12):
        log = put(tmp_path, "n1", *(person(number, 10 * number + at, name="x" * 400) for at in range(10)))
    status = AgentStatus(node="n1", data_centre="dc1", started_time_us=0, running=True)
    blocks = LogBlocks(str(tmp_path / "n1"), RetentionSettings(keep_s=0))
    http = HttpSettings(port=0, logs_without_token=True)
    with HttpServer(http, lambda: status, blocks) as server:
        port = int(server.address.rpartition(":")[2])
        with LosingProxy(("127.0.0.1", port)) as proxy:
            made = settings(tmp_path, 25)
            remote = made.pipeline.model_copy(update={"logs": (), "agents": (proxy.url,)})
            query = Query(made.model_copy(update={"pipeline": remote}), monkeypatch)
            query.start().run().stop()
    assert times(tmp_path) == list(range(120))
    # The agent had done what was asked of it each time, commits of the subscription among it.
    assert len(proxy.lost) > 5
    assert any("subscription" in what for what in proxy.requests)
    with LogReader(log) as reader:
        assert subscribed(log) == reader.end()


WRITES: dict[str, Step] = {
    "time of the batch": (sealed, "write"),
    "state": (bucket, "write_run"),
    "manifest of the state": (manifest, "write"),
    "table": (Storage, "write_if_absent"),
    "data of the table": (Storage, "write"),
    "files": (files_sink, "open_file"),
    "dead letters": (DeadLetterStore, "_write"),
}


@pytest.mark.parametrize("what", WRITES)
def test_full_disk_fails_the_batch_with_the_reason_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A full disk passes: the batch is one to try again, whichever file had no room."""
    query = Query(settings(tmp_path, picky=True), monkeypatch)
    put(tmp_path, "n1", person(1, 10, name="a"))
    query.start().run()
    put(tmp_path, "n1", person(1, 20, name="b"), person(PickySink.refused, 30, name="c"))

    def no_room(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "a file")

    with monkeypatch.context() as patched:
        owner, method = WRITES[what]
        patched.setattr(owner, method, no_room)
        for _ in range(2):
            with pytest.raises((PenstockError, OSError)) as refusal:
                query.step()
            full = exhausted(refusal.value)
            assert full is not None
            assert full.retry is Retry.TIMED
    # The same process goes on, as one does that waits for room.
    query.run()
    assert times(tmp_path) == [10, 20, 30]
    assert rows(tmp_path) == {1: ("b", None), PickySink.refused: ("c", None)}
