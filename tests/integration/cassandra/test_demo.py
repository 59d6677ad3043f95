"""`penstock demo --cassandra` as a user runs it, without a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.integration.cassandra.variants import CACHE


def penstock(*words: str, cache: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_demo_compares_what_a_real_node_selects_with_its_logs(tmp_path: Path) -> None:
    # The user's cache, where the jars are already.
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "penstock").symlink_to(CACHE)
    home = tmp_path / "demo"
    ended = penstock("demo", "--cassandra", "--rows", "2000", "--dir", str(home), "--json", cache=tmp_path / "cache")
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    outcome = json.loads(ended.stdout)
    assert outcome["sound"]
    # The rows that were asked for, one in each table before and one in the end.
    assert outcome["acknowledged"] == 2004
    assert outcome["refused"] == 0
    assert sum(table["changes"] for table in outcome["tables"]) == 2004
    assert all(table["rows"] > 0 and table["missing"] == table["invented"] == 0 for table in outcome["tables"])
    assert [reader["behind"] for reader in outcome["subscriptions"]] == [0, 0, 0]
    assert "starting Cassandra 5.0.9" in ended.stderr
    verified = penstock("log", "verify", str(home / "logs"), cache=tmp_path / "cache")
    assert verified.returncode == 0, verified.stderr
    assert verified.stdout.count("sound") == 3
