"""A session of Spark as the pipeline starts it, and what another user of the machine could see or do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CANARY = "canary-of-a-password"
PROGRAM = """
import os, stat, sys
from pathlib import Path
from penstock.pipeline import scratch
from penstock.pipeline.session import spark_session

place = scratch.prepare(Path(sys.argv[1]))
spark = spark_session("test", "local[1]", {"spark.mine.password": os.environ["CANARY"]}, place)
seen = []
for process in Path("/proc").iterdir():
    try:
        seen.append((process / "cmdline").read_bytes())
    except OSError:
        continue
print("java", any(b"org.apache.spark.deploy.SparkSubmit" in line for line in seen))
print("shown", any(os.environb[b"CANARY"] in line for line in seen))
print("given", spark.conf.get("spark.mine.password"))
print("authenticates", spark.sparkContext.getConf().get("spark.authenticate"))
rows = spark.sparkContext.parallelize(range(100), 2).map(lambda n: (n % 3, n)).groupByKey().count()
print("rows", rows)
print("scratch", any(place.iterdir()), oct(stat.S_IMODE(place.stat().st_mode)))
spark.stop()
"""


def test_nothing_of_a_session_is_open_to_others(tmp_path: Path) -> None:
    hostile, mark = tmp_path / "hostile", tmp_path / "ran"
    hostile.mkdir()
    for name in ("grp", "random"):
        (hostile / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write({name!r})\n")
    command = [sys.executable, "-P", "-c", PROGRAM, str(tmp_path / "scratch")]
    environment = {**os.environ, "CANARY": CANARY}
    ended = subprocess.run(
        command, cwd=hostile, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert ended.returncode == 0, ended.stderr
    said = dict(line.split(" ", 1) for line in ended.stdout.splitlines())
    assert said == {
        "java": "True",
        "shown": "False",
        "given": CANARY,
        "authenticates": "true",
        "rows": "3",
        "scratch": "True 0o700",
    }
    assert not mark.exists()
