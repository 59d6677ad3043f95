"""Laws of the Spark source's planning: whatever the limits, every change is taken once, in the order of its log."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.model.types import INT32
from penstock.pipeline.source.admission import Limits
from penstock.pipeline.source.options import parse
from penstock.pipeline.source.places import access, open_reader
from penstock.pipeline.source.planner import Planner
from penstock.pipeline.source.reach import from_offset, to_offset
from penstock.pipeline.source.stretches import gather
from penstock.settings import Codec, LogSettings
from tests.many_logs import batch, schema_of, with_column

_SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
_BLOCKS = st.lists(st.tuples(st.integers(1, 7), st.integers(0, 2000)), min_size=1, max_size=25)
_LIMIT = st.none() | st.integers(1, 60)


@_SETTINGS
@given(
    logs=st.lists(_BLOCKS, min_size=1, max_size=3),
    limits=st.builds(Limits, _LIMIT, st.none() | st.integers(1, 20_000), st.none() | st.integers(1, 3)),
    codec=st.sampled_from([Codec.NULL, Codec.DEFLATE]),
    without_index=st.booleans(),
)
@example(logs=[[(1, 0)], [(2, 0)]], limits=Limits(1, None, 1), codec=Codec.NULL, without_index=False)
def test_every_change_is_taken_once_and_in_order(
    logs: list[list[tuple[int, int]]], limits: Limits, codec: Codec, without_index: bool
) -> None:
    with tempfile.TemporaryDirectory() as root:
        wanted = {f"t{number}": _write(Path(root), number, blocks, codec) for number, blocks in enumerate(logs)}
        if without_index:
            for index in Path(root).rglob("*.idx"):
                index.unlink()
        options = parse({"path": root, "shape": "runs", "partitionBytes": "64k"})
        found: dict[str, list[int]] = {name: [] for name in wanted}
        plan = Planner(options)
        offset = json.dumps(to_offset(plan.initial()))
        while True:
            # Each batch as if the query had been started again.
            plan.close()
            plan = Planner(options)
            start = from_offset(json.loads(offset))
            end = plan.latest(start, limits)
            if json.dumps(to_offset(end)) == offset:
                break
            taken = 0
            for piece in (piece for task in plan.partitions(start, end) for piece in task):
                for gathered in gather(open_reader(piece.address, access(options)), piece.stretch, size=3000):
                    ids = [change.key["id"] for change in avro.decode(gathered.batch())]
                    found[piece.address.table.table] += ids
                    taken += len(ids)
            assert taken == sum(reach.rows for reach in end.values()) - sum(reach.rows for reach in start.values())
            assert limits.rows is None or taken <= limits.rows
            offset = json.dumps(to_offset(end))
        plan.close()
    assert found == wanted


def _write(root: Path, number: int, blocks: list[tuple[int, int]], codec: Codec) -> list[int]:
    schema, first = schema_of(f"t{number}"), 0
    settings_ = LogSettings(file_bytes_max=6000, codec=codec)
    with TableLog.open(str(root / f"shop.t{number}"), schema, settings=settings_, node="n1") as log:
        for count, size in blocks:
            log.append(batch(schema, first, count, "x" * size))
            first += count
    return list(range(first))


@_SETTINGS
@given(
    steps=st.lists(st.sampled_from(["rows", "rows", "alter", "truncate"]), min_size=1, max_size=15),
    limits=st.builds(Limits, _LIMIT, st.none() | st.integers(1, 20_000), st.none() | st.integers(1, 3)),
)
def test_every_header_is_taken_whether_changes_come_of_it_or_not(steps: list[str], limits: Limits) -> None:
    with tempfile.TemporaryDirectory() as root:
        schema, wanted = replace(schema_of("t"), id="a"), 0
        with TableLog.open(f"{root}/shop.t", schema, node="n1") as log:
            for number, step in enumerate(steps):
                if step == "rows":
                    log.append(batch(schema, wanted, 3))
                    wanted += 3
                    continue
                schema = with_column(schema, f"c{number}", INT32) if step == "alter" else schema
                schema = replace(schema, truncated_us=number) if step == "truncate" else schema
                log.begin(schema)
        plan = Planner(parse({"path": root, "shape": "runs"}))
        start, found = plan.initial(), []
        while (end := plan.latest(start, limits)) != start:
            for piece in (piece for task in plan.partitions(start, end) for piece in task):
                for gathered in gather(plan_reader(root), piece.stretch):
                    found += [change.key["id"] for change in avro.decode(gathered.batch())]
            start = end
        files = plan_reader(root).numbers()
        plan.close()
    assert found == list(range(wanted))
    assert [reach.file for reach in start.values()] == files[-1:]


def plan_reader(root: str) -> LogReader:
    return LogReader(f"{root}/shop.t")
