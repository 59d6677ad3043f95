"""Pipelines, one after another, in one process with one Spark: `pipeline_process.py DIRECTORY`.

Each line of standard input is the path of a settings file; its pipeline delivers what is in the logs, and a line of
JSON says how that ended. A new pipeline is made for every line, so each is a restart on the same checkpoint.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from penstock import settings
from penstock.errors import PenstockError
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.session import spark_session
from penstock.pipeline.source.source import register
from penstock.telemetry import set_up_logging


def main(directory: str) -> None:
    set_up_logging("warning")
    own = {"spark.sql.shuffle.partitions": "2", "spark.local.dir": f"{directory}/spark"}
    own["spark.sql.warehouse.dir"] = f"{directory}/warehouse"
    session = spark_session("schema-matrix", "local[2]", own)
    register(session)
    for line in sys.stdin:
        config = line.strip()
        sys.stderr.write(f"== {Path(config).name}\n")
        try:
            Pipeline(settings.load(config), spark=session).run(available_now=True)
            said: dict[str, str] = {}
        except PenstockError as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1])
