"""Killed at any call that changes a Delta table or its index: the batch done again gives the same table."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.deliver.delta import sink as delta_sink
from penstock.deliver.delta.sink import DeltaSink
from penstock.deliver.lakehouse.storage import Storage
from penstock.model import types
from penstock.model.schema import Column, TableSchema
from penstock.records.records import Records
from penstock.settings.sinks import DeltaSettings
from testkit.crash_files import Killed
from tests.lake_records import SCHEMA, TABLE, by_key, deliver, query, records

_COUNTING = threading.Lock()
WIDER = TableSchema(TABLE, (*SCHEMA.columns, Column("paid", types.BOOLEAN)), version=2, source="sandbox")


class DyingStorage(Storage):
    """Dies at one call that changes the disk: in the middle of it, or when it is done and the next is not begun."""

    calls = 0
    last = 0
    moment = "after"

    def _step(self, call: Callable[[], Any], torn: Callable[[], Any]) -> Any:
        with _COUNTING:
            DyingStorage.calls += 1
            number = DyingStorage.calls
        if number < DyingStorage.last:
            return call()
        if number > DyingStorage.last:
            # Tables are committed side by side; a dead process does nothing more to any of them.
            raise Killed("after its death")
        if DyingStorage.moment == "torn":
            torn()
        else:
            call()
        raise Killed(f"at call {DyingStorage.last}")

    def write(self, name: str, content: bytes | memoryview) -> None:
        self._step(
            lambda: Storage.write(self, name, content),
            lambda: Path(self.path(name)).write_bytes(bytes(content)[: len(content) // 2]),
        )

    def write_if_absent(self, name: str, content: bytes) -> bool:
        made = self._step(
            lambda: Storage.write_if_absent(self, name, content),
            lambda: Path(self.path(name + ".tmp")).write_bytes(content[: len(content) // 2]),
        )
        return bool(made)

    def rename(self, old: str, new: str) -> None:
        self._step(lambda: Storage.rename(self, old, new), lambda: None)

    def delete(self, name: str) -> None:
        self._step(lambda: Storage.delete(self, name), lambda: None)


def make(directory: Path) -> DeltaSink:
    return DeltaSink(DeltaSettings(directory=directory, history=True, checkpoint_every=3))


def batch_of(number: int) -> dict[int, list[Records]]:
    """Batch 11 has a new column and comes when small files are due to be written anew."""
    schema = WIDER if number == 11 else SCHEMA
    extra = {"paid": True} if number == 11 else {}
    parts = {}
    for bucket in range(2):
        rows: list[Any] = [
            ((key, "a"), None if key % 5 == number % 5 else {"note": f"b{number}", "amount": number, **extra})
            for key in range(bucket, 12, 2)
            if (key + number) % 3
        ]
        parts[bucket] = [records(schema, [*rows, ((100 + 2 * number + bucket, "a"), {"note": "new", "amount": 0})])]
    return parts


def contents(directory: Path) -> tuple[dict[Any, Any], list[Any]]:
    history = query(directory / "shop/orders_history", "SELECT id, line, note, _batch FROM t ORDER BY _batch, id")
    return by_key(query(directory / "shop/orders")), [tuple(each.values()) for each in history]


def go(directory: Path, batches: range) -> None:
    sink = make(directory)
    sink.prepare([SCHEMA])
    for number in batches:
        if number == 11:
            sink.prepare([WIDER])
        deliver(sink, number, batch_of(number))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A table with eleven batches, and what it holds after two more."""
    directory = tmp_path_factory.mktemp("delta")
    go(directory / "eleven", range(11))
    shutil.copytree(directory / "eleven", directory / "thirteen")
    go(directory / "thirteen", range(11, 13))
    return directory / "eleven", contents(directory / "thirteen")


@pytest.mark.parametrize("moment", ["torn", "after"])
def test_killed_at_any_call_the_batch_done_again_gives_the_same_tables(
    tmp_path: Path, prepared: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    start, expected = prepared
    monkeypatch.setattr(DyingStorage, "moment", moment)
    call, died = 0, True
    while died:
        call += 1
        directory = tmp_path / str(call)
        shutil.copytree(start, directory)
        monkeypatch.setattr(DyingStorage, "calls", 0)
        monkeypatch.setattr(DyingStorage, "last", call)
        with monkeypatch.context() as patched:
            patched.setattr(delta_sink, "Storage", DyingStorage)
            try:
                go(directory, range(11, 12))
                died = False
            except Killed:
                pass
        go(directory, range(11, 13))
        assert contents(directory) == expected, f"killed at call {call}"
        shutil.rmtree(directory)
    assert call > 12
