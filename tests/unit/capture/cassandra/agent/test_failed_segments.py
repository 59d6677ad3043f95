"""Records of segments that were not read as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.capture.cassandra.agent.failed_segments import (
    END,
    FailedSegment,
    FailedSegments,
    Range,
    left_out,
    missing_entries,
)
from penstock.capture.cassandra.segments.sections import Damage, Section
from penstock.cli.main import main
from penstock.errors import CorruptCheckpoint
from penstock.sandbox.commit_log.segment_writer import encode_entry
from penstock.system.files import OsFiles

NAME = "CommitLog-7-1.log"


def damage(position: int, what: str) -> Damage:
    return Damage(NAME, position, position, what, "bad")


def test_record_is_kept_until_the_segment_is_mended(tmp_path: Path) -> None:
    failed = FailedSegments(OsFiles(), str(tmp_path))
    segment = FailedSegment(NAME, f"/x/{NAME}", (Range(10, 11), Range(50, END)), "bad")
    failed.add(segment)
    other = FailedSegments(OsFiles(), str(tmp_path))
    assert other.all() == [segment]
    assert other.requested() == []
    other.request(NAME)
    assert failed.requested() == [segment]
    failed.answered(NAME, mended=False)
    assert (failed.requested(), failed.all()) == ([], [segment])
    failed.request(NAME)
    failed.answered(NAME, mended=True)
    assert (failed.requested(), failed.all()) == ([], [])


def test_damaged_record_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    failed = FailedSegments(OsFiles(), str(tmp_path))
    failed.add(FailedSegment(NAME, "", (), ""))
    (tmp_path / "failed" / f"{NAME}.failed.json").write_text("{}")
    with pytest.raises(CorruptCheckpoint, match=r"record of a failed segment is damaged.*failed\.json"):
        failed.all()


def test_each_kind_of_damage_leaves_out_what_it_made_unreadable() -> None:
    found = [damage(20, "entry"), damage(40, "mutation"), damage(60, "entry size"), damage(200, "marker")]
    assert left_out(found, [100, 180]) == (Range(20, 21), Range(40, 41), Range(60, 100), Range(200, END))
    assert left_out([damage(120, "section"), damage(0, "header")], [100]) == (Range(120, END),)


def test_only_entries_that_begin_in_a_range_are_read_again() -> None:
    entries = [encode_entry(bytes([number]) * 20) for number in range(4)]
    section = Section(b"".join(entries) + bytes(8), 1000, sealed=True)
    size = len(entries[0])
    found = list(missing_entries(section, [Range(1000 + size, 1000 + size + 1), Range(1000 + 3 * size, END)]))
    assert [part.start for part in found] == [1000 + size, 1000 + 3 * size]
    assert [bytes(part.data) for part in found] == [entries[1], entries[3]]
    assert list(missing_entries(section, [Range(0, 1000), Range(2000, END)])) == []
    torn = Section(entries[0] + entries[1][:10], 1000, sealed=True)
    assert [part.start for part in missing_entries(torn, [Range(1000 + size, END)])] == [1000 + size]


def test_a_dry_run_of_the_command_names_segments_and_asks_for_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(f'[agent]\ndirectory = "{tmp_path / "logs"}"\n')
    failed = FailedSegments(OsFiles(), str(tmp_path / "logs" / ".agent"))
    failed.add(FailedSegment(NAME, f"/x/{NAME}", (Range(10, 11),), "bad"))
    assert main(["agent", "reprocess-errors", str(config), "--dry-run"]) == 0
    assert f"{NAME}: would be read again" in capsys.readouterr().out
    assert failed.requested() == []
    assert main(["agent", "reprocess-errors", str(config)]) == 0
    assert [one.name for one in failed.requested()] == [NAME]
