"""The Avro kernels' figures (bench/avro.py) as one run of the harness, with the machine and the load beside them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bench import avro
from bench.harness import PAIRS_MIN, Figure, Run, Target, options
from penstock.formats import native


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options("kernels", "Avro row encoder and decoder against fastavro", arguments, rows=0)
    run = Run("avro", chosen.quick)
    rows = chosen.rows or (2_000 if chosen.quick else 20_000)
    pairs = PAIRS_MIN if chosen.quick else 7
    results = avro.run(rows, pairs)
    # The rows are compared inside, before anything is timed.
    run.check(f"fastavro writes and reads the same bytes as ours, {rows} rows of each table", True)
    for result in results:
        target = Target(at_least=result["target"]) if result["target"] else None
        run.add(
            Figure(
                f"{result['work']}, {result['table']} ÷ fastavro, per CPU-second",
                result["ratio"],
                "×",
                result["ratio_min"],
                result["ratio_max"],
                str(target or ""),
                None if target is None else target.met(result["ratio"]),
                pairs,
                result["ours_per_cpu_s"],
                result["fastavro_per_cpu_s"],
                "rows/CPU-s",
                f"{'native' if native else 'pure Python'} kernels, {result['row_bytes']} bytes per row",
            )
        )
    return run.finish(chosen)


if __name__ == "__main__":
    sys.exit(main())
