"""The page about upgrades has the versions that the code has, and quotes what it says of others."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.capture import state_file
from penstock.capture.cassandra.segments import segment as commit_log
from penstock.capture.cassandra.snapshot import state as snapshot_state
from penstock.deliver import target_marker
from penstock.deliver.delta import manifest_file
from penstock.deliver.kafka import progress
from penstock.fold import manifest
from penstock.log import catalog, checkpoint, identity, index, read_times, segment
from penstock.pipeline import checkpoint as pipeline_checkpoint
from penstock.pipeline import dead_letters
from penstock.serve import protocol

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "operate" / "upgrade.md").read_text(encoding="utf-8")
VERSIONS = [
    segment.FORMAT,
    identity.FORMAT,
    index._VERSION,
    checkpoint.FORMAT,
    read_times.FORMAT,
    catalog.VERSION,
    state_file.FORMAT,
    snapshot_state.FORMAT,
    pipeline_checkpoint._VERSION,
    manifest.FORMAT,
    progress._VERSION,
    manifest_file._FORMAT,
    target_marker._FORMAT,
    dead_letters._VERSION,
    protocol.VERSION,
]


def table() -> list[list[str]]:
    part = PAGE.split("## Versions on disk", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_version_of_the_table_is_that_of_the_code() -> None:
    *ours, cassandra = [row[2] for row in table()]
    assert list(map(int, ours)) == VERSIONS
    assert cassandra == f"{commit_log.FORMATS[0]} to {commit_log.FORMATS[-1]}"


def test_every_message_of_the_table_is_one_of_the_code() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "penstock").rglob("*.py"))
    said = re.sub(r"\{[^{}]*\}", "…", sources)
    quoted = [message for row in table() for message in re.findall(r"`([^`]+)`", row[3])]
    assert len(quoted) > 8
    for message in quoted:
        words = re.sub(r"\d+$", "…", message).split("…")[0].strip()
        assert words in said, message


def test_the_version_that_the_page_speaks_of_is_this_one() -> None:
    import penstock

    assert f"one version, {penstock.__version__}" in PAGE
