"""Change logs captured again: what is their own, beside what holds for every source."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.capture.replay.source import ReplaySource, check
from penstock.capture.source_agent import SourceAgent
from penstock.errors import ChangesLost, CorruptCheckpoint, CorruptLog, InvalidSetting
from penstock.formats import avro
from penstock.log.erasure import erase
from penstock.log.forgotten import Target
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.log.table_logs import LogSpec
from penstock.model import types as t
from penstock.model.change import Change, Op, Origin, Set, Transaction
from penstock.model.schema import Column, Order, Role, TableId, TableSchema
from penstock.serve.http import health_checks
from penstock.serve.metrics import AgentMetrics
from penstock.settings import LogSettings, Settings
from penstock.system.files import Files
from testkit.crash_files import CrashFiles, Killed
from tests.scripted_agent import Script, Setup, SteppedClock

WRITTEN = LogSettings(reserve_bytes=0)


def schema(name: str = "orders", **more: Any) -> TableSchema:
    columns = (Column("id", t.INT64, Role.PARTITION), Column("note", t.TEXT))
    return TableSchema(TableId("shop", name), columns, source="sandbox", **more)


def plain(number: int, note: str = "", origin: Origin | None = None) -> Change:
    return Change(Op.INSERT, {"id": number}, {"note": Set(note)}, time=number, origin=origin or Origin())


class Bench:
    """A directory of logs and the agents that replay it."""

    def __init__(self, root: Path, **replay: Any) -> None:
        self.source, self.data = root / "source", root / "data"
        self.source.mkdir()
        self.replay = {"follow": False, **replay}
        self.agent_settings: dict[str, Any] = {}
        self.clock = SteppedClock()

    def write(self, *changes: Change, of: TableSchema | None = None, log: str = "", block: int = 3) -> None:
        of = of or schema()
        directory = str(self.source / f"{of.table}{log}")
        with TableLog.open(directory, of, settings=WRITTEN, node="n7", data_centre="dc7") as opened:
            for first in range(0, len(changes), block):
                opened.append(avro.encode(of, changes[first : first + block]))

    def settings(self) -> Settings:
        tree = {
            "source": {"kind": "replay"},
            "replay": {"directory": self.source, **self.replay},
            "agent": {"directory": self.data, "chunk_bytes": 4096, **self.agent_settings},
            "log": {"reserve_bytes": 0},
        }
        return Settings.model_validate(tree)

    def agent(self, files: Files | None = None, **options: Any) -> SourceAgent:
        settings = self.settings()
        source = ReplaySource(settings.replay, clock=self.clock)
        return SourceAgent(settings, source, clock=self.clock, files=files, background=False, **options)

    def run(self, *steps: Any, files: Files | None = None, **options: Any) -> SourceAgent:
        agent = self.agent(files, **options)
        agent.run(Script(self.clock, steps))
        return agent

    def stored(self, name: str = "shop.orders", files: Files | None = None) -> list[Change]:
        with LogReader(str(self.data / name), files=files) as reader:
            return [change for batch in reader.read() for change in avro.decode(batch)]


def damage(path: Path, *, at: float = 0.5) -> bytes:
    """Turn a byte inside the data round; what it was."""
    before = path.read_bytes()
    place = int(len(before) * at)
    path.write_bytes(before[:place] + bytes([before[place] ^ 255]) + before[place + 1 :])
    return before


def test_changes_come_again_as_they_were_and_the_log_has_the_first_node_s_name(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    changes = [
        plain(1, "a", Origin("n7", "dc7", "first.log", 10, None, 0)),
        plain(1, "b", Origin("n7", "dc7", None, None, Transaction("0", 5, "0-1-5"), 1)),
        plain(2),
    ]
    bench.write(*changes)
    agent = bench.run()
    assert bench.stored() == changes
    assert (agent.node, agent.data_centre) == ("n7", "dc7")
    with LogReader(str(bench.data / "shop.orders")) as reader:
        assert reader.heading(1).node == "n7"


def test_eras_and_versions_keep_their_order(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    eras = [schema(id="a", altered=1), schema(id="a", altered=1, truncated_us=50), schema(id="b", altered=60)]
    for number, era in enumerate(eras):
        bench.write(plain(number), of=era)
    # One that never had a change, and still says what the table is now.
    bench.write(of=replace(eras[2], columns=(*eras[2].columns, Column("paid", t.TEXT)), altered=70))
    with TableLog.open(str(bench.source / "shop.orders"), schema(), settings=WRITTEN) as opened:
        opened.begin(replace(eras[2], columns=(*eras[2].columns, Column("paid", t.TEXT)), altered=70))
    bench.run()
    with LogReader(str(bench.data / "shop.orders")) as reader:
        assert [batch.schema.era for batch in reader.read()] == [era.era for era in eras]
        last = reader.heading(reader.numbers()[-1]).schema
    assert (last.altered, "paid" in last.by_name) == (70, True)


@pytest.mark.parametrize("order", list(Order))
def test_the_order_is_what_the_settings_say(tmp_path: Path, order: Order) -> None:
    bench = Bench(tmp_path, ordered_by=order.value)
    bench.write(plain(1))
    bench.run()
    with LogReader(str(bench.data / "shop.orders")) as reader:
        assert [batch.schema.ordered_by for batch in reader.read()] == [order]


def test_a_table_that_cannot_have_the_order_stops_alone_and_is_named(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered_by="log", follow=True)
    columns = (Column("id", t.INT64, Role.PARTITION), Column("at", t.INT64, Role.CLUSTERING), Column("note", t.TEXT))
    unfit = TableSchema(TableId("shop", "carts"), columns, source="sandbox")
    bench.write(Change(Op.INSERT, {"id": 1, "at": 1}, {"note": Set("")}, time=1), of=unfit)
    bench.write(plain(1))
    status = bench.run().status()
    assert len(bench.stored()) == 1
    assert [found.healthy for found in status.checks] == [False]
    assert "shop.carts" in str(status.checks[0].message)


def test_only_chosen_tables_and_their_own_logs_are_captured(tmp_path: Path) -> None:
    bench = Bench(tmp_path, include=["shop.*"], exclude=["shop.secret*"])
    bench.write(plain(1))
    bench.write(plain(2), log="@named")
    bench.write(plain(3), of=schema("secrets"))
    bench.write(plain(4), of=replace(schema(), table=TableId("other", "orders")))
    (bench.source / "notes.txt").write_text("not a log")
    (bench.source / "a.directory").mkdir()
    bench.run()
    assert sorted(path.name for path in bench.data.iterdir() if path.name.startswith(("shop", "other"))) == [
        "shop.orders"
    ]
    assert bench.stored() == [plain(1)]


def test_a_directory_that_grows_is_followed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, follow=True)
    bench.write(plain(1))
    steps = (
        lambda: bench.write(plain(2)),
        lambda: bench.write(plain(7), of=schema("items")),
        lambda: bench.write(*map(plain, range(3, 40))),
    )
    agent = bench.run(*steps)
    assert [change.key["id"] for change in bench.stored()] == list(range(1, 40))
    assert bench.stored("shop.items") == [plain(7)]
    assert agent.status().figures["penstock_replay_behind_rows"] == 0
    text = AgentMetrics(agent.status).text().decode()
    assert "penstock_replay_changes_total 40.0" in text
    assert "penstock_commit_log" not in text


def test_without_following_the_agent_ends_by_itself(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write(*map(plain, range(10)))
    script = Script(bench.clock, (lambda: pytest.fail("the agent waits"),))
    bench.agent().run(script)
    assert len(bench.stored()) == 10
    bench.write(plain(10))
    bench.agent().run(script)
    assert [change.key["id"] for change in bench.stored()] == list(range(11))


def test_damage_is_named_and_stops_that_table_alone_until_it_is_mended(tmp_path: Path) -> None:
    bench = Bench(tmp_path, follow=True)
    for number in range(60):
        bench.write(plain(number, "x" * 50))
    bench.write(plain(1), of=schema("items"))
    path = bench.source / "shop.orders" / "shop.orders.000001.avro"
    whole = damage(path)
    seen: list[Any] = []
    agent = bench.agent()

    def look() -> None:
        seen.append((agent.status(), len(bench.stored())))
        bench.write(plain(2), of=schema("items"))

    agent.run(Script(bench.clock, (look, lambda: path.write_bytes(whole), lambda: seen.append((agent.status(), 0)))))
    (broken, count), (mended, _) = seen
    assert 0 < count < 60
    assert "shop.orders.000001.avro" in str(health_checks(broken)["replay"]["message"])
    assert not health_checks(broken)["replay"]["healthy"]
    assert broken.running
    assert health_checks(mended)["replay"] == {"healthy": True}
    assert [change.key["id"] for change in bench.stored()] == list(range(60))
    assert [change.key["id"] for change in bench.stored("shop.items")] == [1, 2]


def test_without_following_damage_is_the_agent_s_end_after_all_else_is_safe(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write(*map(plain, range(60)))
    bench.write(plain(1), of=schema("items"))
    path = bench.source / "shop.orders" / "shop.orders.000001.avro"
    whole = damage(path)
    with pytest.raises(CorruptLog, match=r"shop\.orders"):
        bench.run()
    assert bench.stored("shop.items") == [plain(1)]
    path.write_bytes(whole)
    bench.run()
    assert bench.stored() == list(map(plain, range(60)))
    assert bench.stored("shop.items") == [plain(1)]


def killed(bench: Bench, files: CrashFiles, after: int) -> CrashFiles | None:
    """Run an agent that dies so many steps on; the disk that the next one finds. None: it came to its end before."""
    at = files.disk.steps + after

    def watch(seen: CrashFiles) -> None:
        if seen.disk.steps == at:
            seen.kill()

    files.disk.watch = watch
    try:
        bench.run(files=files)
    except Killed:
        return files.process()
    finally:
        files.disk.watch = None
    return None


@pytest.mark.parametrize("again", [3, 50, 56, 62])
def test_the_same_said_twice_is_two_changes_also_when_agents_were_killed(tmp_path: Path, again: int) -> None:
    """Without origins only the content tells changes apart, and it is counted."""
    long = "x" * 3000
    texts = ["a", "b", "a", "a", "c", "b", "a", "a", "b", "a"]
    given = [plain(1, text + long) for text in texts]
    for first in range(1, 400, 5):
        root = tmp_path / str(first)
        root.mkdir()
        bench = Bench(root)
        bench.agent_settings = {"place_interval_s": 60}
        bench.write(*given, block=1)
        found = killed(bench, CrashFiles(), first)
        if found is None:
            break
        bench.agent_settings = {"place_interval_s": 0}
        files = killed(bench, found, again) or found.process()
        bench.run(files=files)
        assert bench.stored(files=files) == given, f"killed at step {first}, and {again} steps on"
    assert first > 30


def test_logs_without_a_place_are_not_filled_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write(plain(1))
    bench.run()
    shutil.rmtree(bench.data / ".agent")
    with pytest.raises(CorruptCheckpoint, match="place is gone"):
        bench.run()
    assert bench.stored() == [plain(1)]


def test_a_log_that_was_replaced_or_put_back_stops(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write(plain(1))
    shutil.copytree(bench.source / "shop.orders", tmp_path / "older")
    bench.write(plain(2))
    bench.run()
    shutil.rmtree(bench.source / "shop.orders")
    shutil.copytree(tmp_path / "older", bench.source / "shop.orders")
    with pytest.raises(Exception, match="lies behind the log's end"):
        bench.run()
    shutil.rmtree(bench.source / "shop.orders")
    bench.write(plain(3))
    with pytest.raises(CorruptLog, match="another log"):
        bench.run()
    assert bench.stored() == [plain(1), plain(2)]


def test_what_retention_took_before_it_was_read_is_told(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write(plain(1))
    bench.run()
    directory = bench.source / "shop.orders"
    with TableLog.open(str(directory), schema(), settings=WRITTEN) as opened:
        for number in (2, 3):
            opened.seal()
            opened.append(avro.encode(schema(), [plain(number)]))
    for path in [*directory.glob("*.000001.*"), *directory.glob("*.000002.*")]:
        path.unlink()
    with pytest.raises(ChangesLost):
        bench.run()


def test_an_erased_change_is_not_captured(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write(*[plain(number, "x" * 30, Origin(file="f", position=number, ordinal=0)) for number in range(5)])
    erase(str(bench.source / "shop.orders"), lambda _schema: [Target((3,))])
    bench.run()
    assert [change.key["id"] for change in bench.stored()] == [0, 1, 2, 4]


def test_masks_hold_and_catalogued_logs_get_their_part(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.agent_settings = {"exclude_columns": ["shop.orders.note"]}
    bench.write(plain(1, "nobody may read this"))
    announced: list[TableSchema] = []
    bench.run(specs=lambda _table: (LogSpec(), LogSpec("more")), announce=announced.append)
    for name in ("shop.orders", "shop.orders@more"):
        assert [change.cells for change in bench.stored(name)] == [{}]
    assert [one.excluded for one in announced] == [("note",)]


def test_settings_that_cannot_work_are_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    settings = bench.settings()
    check(settings)
    for tree in (
        {"source": {"kind": "replay"}},
        {"source": {"kind": "replay"}, "replay": {"directory": tmp_path / "none"}},
        {"replay": {"directory": bench.source}},
        {"source": {"kind": "replay"}, "replay": {"directory": tmp_path}, "agent": {"directory": tmp_path}},
    ):
        with pytest.raises(InvalidSetting, match="replay"):
            check(Settings.model_validate(tree))


def test_a_state_of_another_kind_is_not_taken_over(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "node")
    setup.node.create()
    setup.node.write(1)
    setup.run()
    bench = Bench(tmp_path)
    bench.data = setup.data
    with pytest.raises(InvalidSetting, match="kind 'cassandra'"):
        bench.run()
