"""Commit log: segments to change batches, against Cassandra's own CommitLogReader on the same files.

Both check every checksum and read every row and cell; ours also writes them as rows of the change log. Warm, the JVM
has read the same files several times before a pass counts. Cold is a whole process, from its start to the end of the
first segment. Times are CPU-seconds of the whole process, so that what collector and compiler do counts too.

    python -m bench commit-log [SEGMENT…] [--schema FILE] [--out DIR]

Without segments, a mixed and a small-row workload are written first, by Cassandra's own commit log (tests/java). With
segments, the tables come from the schema file, or from the segments' own schema mutations, and the results are shown
and written to `--out`, never to the published ones.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.commit_log_peer import WORKLOAD, CommitLogPeer, prepare, statements
from bench.decode_once import decode, known
from bench.harness import PAIRS_MIN, ROOT, CheckFailed, Run, Sample, Target, cpu_s, interleave, options, quotients
from penstock.model.batch import ChangeBatch
from penstock.model.change import Op

WARM_UPS = 8
MUTATIONS = {"mixed": 300_000, "small": 500_000}
QUICK = 20_000


class Sides:
    """The same files on both sides."""

    def __init__(self, name: str, files: Sequence[Path], schema: Path | None, peer: CommitLogPeer) -> None:
        self.name = name
        self.files = list(files)
        self.bytes = sum(file.stat().st_size for file in files)
        self._names = [str(file) for file in files]
        self._schema = str(schema) if schema else None
        self._peer = peer
        self.mutations = 0

    def check(self, run: Run) -> None:
        """Both find as many mutations, rows and cells."""
        from penstock.formats import arrow

        batches: list[ChangeBatch] = []
        counts = decode(self._names, known(self._schema), keep=batches)
        theirs = self._peer.measure("rows", self.files)
        rows = cells = 0
        for batch in batches:
            columns = arrow.to_arrow(batch)
            rows += sum(op not in (Op.DELETE_PARTITION, Op.DELETE_RANGE) for op in columns.column("op").to_pylist())
            cells += _cells(columns)
        self.mutations = int(theirs["mutations"])
        ours = (counts.mutations, rows, cells)
        wanted = (theirs["mutations"], theirs["rows"], theirs["cells"])
        if theirs["unknown"] or counts.parked:
            raise CheckFailed(f"{theirs['unknown']} mutations of unknown tables there, {counts.parked} here")
        what = f"{self.name}: {wanted[0]:,} mutations, {wanted[1]:,} rows, {wanted[2]:,} cells on both sides"
        run.check(what if ours == wanted else f"{what}, not {ours}", ours == wanted)

    def ours(self) -> Sample:
        schemas = known(self._schema)
        wall, cpu = time.monotonic(), cpu_s()
        decode(self._names, schemas)
        return Sample(self.mutations, time.monotonic() - wall, cpu_s() - cpu)

    def theirs(self, mode: str = "rows") -> Sample:
        answer = self._peer.measure(mode, self.files)
        return Sample(self.mutations, answer["wall_s"], answer["cpu_s"])

    def our_process(self) -> Sample:
        """The first segment in a process of its own."""
        command = [sys.executable, "-m", "bench.decode_once", self._schema or "", self._names[0]]
        return _process(command, "")

    def their_process(self, statements_file: Path, directory: Path) -> Sample:
        commands = f"schema\t{statements_file}\npass\trows\t{self.files[0]}\n"
        directory.mkdir(exist_ok=True)
        return _process([*prepare(), str(directory)], commands)


def _process(command: Sequence[str], text: str) -> Sample:
    wall, cpu = time.monotonic(), cpu_s(children=True)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT)  # noqa: S603 - words of ours
    wall, cpu = time.monotonic() - wall, cpu_s(children=True) - cpu
    return Sample(json.loads(done.stdout.splitlines()[-1])["mutations"], wall, cpu)


def _cells(columns: Any) -> int:
    """The cells of a record batch: one for a value or a deletion, one for each element that a delta has."""
    import pyarrow.compute as pc

    if "cells" not in columns.schema.names:
        return 0
    total = 0
    for column in columns.column("cells").flatten():
        names = [field.name for field in column.type]
        state = column.field(names.index("state"))
        total += pc.sum(pc.or_(pc.equal(state, 1), pc.equal(state, 2))).as_py() or 0
        if "delta" in names:
            delta = column.field(names.index("delta"))
            for part in ("elements", "removed"):
                if part in [field.name for field in delta.type]:
                    total += pc.sum(pc.list_value_length(pc.struct_field(delta, part))).as_py() or 0
    return total


def measure(run: Run, sides: Sides, chosen: argparse.Namespace, statements_file: Path, directory: Path) -> None:
    sides.check(run)
    for _ in range(1 if chosen.quick else WARM_UPS):
        sides.theirs()
    pairs = PAIRS_MIN if chosen.quick else 7
    ours, theirs = interleave(sides.ours, sides.theirs, pairs)
    note = f"{sides.mutations:,} mutations, {sides.bytes / 1e6 / sides.mutations * 1e6:.0f} bytes each"
    _ratio(run, f"{sides.name}, warm ÷ CommitLogReader, per CPU-second", ours, theirs, Target(at_least=5), note)
    values = [sides.theirs("values") for _ in ours]
    _ratio(run, f"{sides.name}, warm ÷ CommitLogReader with values as objects", ours, values, None)
    ours, theirs = interleave(sides.our_process, lambda: sides.their_process(statements_file, directory), PAIRS_MIN)
    if ours[0].amount != theirs[0].amount:
        raise CheckFailed(f"{ours[0].amount} mutations of the first segment here, {theirs[0].amount} there")
    _ratio(
        run, f"{sides.name}, cold ÷ CommitLogReader, per CPU-second", ours, theirs, Target(at_least=20), "one segment"
    )


def _ratio(
    run: Run, name: str, ours: Sequence[Sample], theirs: Sequence[Sample], target: Target | None, note: str = ""
) -> None:
    rates = [[sample.cpu_rate for sample in side] for side in (ours, theirs)]
    middle = [sorted(side)[len(side) // 2] for side in rates]
    run.ratio(name, quotients(*rates), target, ours=middle[0], peer=middle[1], unit="mutations/CPU-s", note=note)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options("commit_log", (__doc__ or "").splitlines()[0], arguments, files="segments to measure with")
    run = Run("commit-log", chosen.quick)
    directory = Path(chosen.directory) / f"commit-log-{uuid.uuid4().hex[:8]}"
    directory.mkdir(parents=True)
    try:
        with CommitLogPeer(directory / "peer", settings={"commitlog_total_space": "4GiB"}) as peer:
            if chosen.files:
                schemas = known(str(chosen.schema) if chosen.schema else None)
                decode([str(file) for file in chosen.files], schemas)
                made = directory / "schema.cql"
                made.write_text(statements(schemas.tables()), encoding="utf-8")
                peer.schema(made)
                sides = Sides("given segments", chosen.files, chosen.schema, peer)
                measure(run, sides, chosen, made, directory / "cold")
            else:
                peer.schema(WORKLOAD)
                for workload, mutations in MUTATIONS.items():
                    count = QUICK if chosen.quick else mutations
                    files = peer.write(directory / workload, workload=workload, mutations=count)
                    sides = Sides(workload, files, WORKLOAD, peer)
                    measure(run, sides, chosen, WORKLOAD, directory / "cold")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return run.finish(chosen)


if __name__ == "__main__":
    sys.exit(main())
