"""The pipeline's stages one by one, in one process without Spark: what reading, folding, writing and committing cost.

The parts are those that the pipeline's tasks and its driver use, called in the same order on the same logs; only Spark
is left out, so what it costs is the difference to a whole run. Times are CPU-seconds.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from penstock.deliver.sink import Sink, Task
from penstock.fold.bucket import BucketState
from penstock.fold.folder import Folder
from penstock.fold.state import StateStore
from penstock.log.block import unseal
from penstock.log.reader import LogReader
from penstock.model.batch import ChangeBatch
from penstock.records import keys
from penstock.records._groups import Contents
from penstock.records.runs import Run
from penstock.settings import MergeSettings

NAME = "bench-stages"


class Stages:
    """CPU-seconds by stage: read, fold, write, state, commit."""

    def __init__(self, sink: Sink, directory: Path, buckets: int) -> None:
        self._sink = sink
        self._state = str(directory)
        self._buckets = buckets
        self._prepared: set[str] = set()
        self.cpu_s: dict[str, float] = defaultdict(float)
        self.changes = 0
        self.records = 0

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        begin = time.process_time()
        yield
        self.cpu_s[stage] += time.process_time() - begin

    def run(self, logs: Mapping[str, Path], rows_per_batch: int) -> None:
        """Everything in the logs of one table, given by node; each batch takes as much of every log."""
        readers = [(node, LogReader(str(log))) for node, log in logs.items()]
        try:
            streams = [(node, reader.read()) for node, reader in readers]
            batch = 0
            while given := self._read(streams, rows_per_batch // len(streams)):
                self._batch(batch, given)
                batch += 1
        finally:
            for _, reader in readers:
                reader.close()

    def _read(self, streams: Sequence[tuple[str, Iterator[ChangeBatch]]], each: int) -> dict[int, list[Run]]:
        runs: dict[int, list[Run]] = {}
        known = Contents() if len(streams) > 1 else None
        with self._timed("read"):
            for node, stream in streams:
                taken = 0
                while taken < each and (block := next(stream, None)) is not None:
                    rows = unseal(block.rows, block.count)
                    for part in keys.split(ChangeBatch(block.schema, block.count, rows), self._buckets, known):
                        run = Run(block.schema, node, part.bucket, part.count, part.rows)
                        runs.setdefault(part.bucket, []).append(run)
                    taken += block.count
                self.changes += taken
        return runs

    def _batch(self, batch: int, given: dict[int, list[Run]]) -> None:
        now_us = time.time_ns() // 1000
        for schema in {run.schema.fingerprint: run.schema for runs in given.values() for run in runs}.values():
            if schema.fingerprint not in self._prepared:
                self._sink.prepare([schema])
                self._prepared.add(schema.fingerprint)
        folder = Folder(MergeSettings(), self._sink.record, every=self._sink.every)
        payloads, tokens = [], {}
        for bucket, runs in sorted(given.items()):
            with self._timed("state"):
                state = BucketState.open(self._state, bucket, batch)
            with self._sink.writer(Task(NAME, batch, bucket, now_us)) as writer:
                folded = folder.fold(runs, state, now_s=now_us // 1_000_000)
                while True:
                    with self._timed("fold"):
                        records = next(folded, None)
                    if records is None:
                        break
                    with self._timed("write"):
                        writer.write(records if self._sink.every else records.last())
                with self._timed("write"):
                    done = writer.finish()
            self.records += done.records
            if done.payload:
                payloads.append(done.payload)
            with self._timed("state"):
                tokens[bucket] = state.finish().token
        with self._timed("commit"):
            self._sink.commit(NAME, batch, payloads)
        with self._timed("state"):
            StateStore(self._state, self._buckets).commit(batch, tokens)
