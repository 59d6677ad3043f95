"""`penstock cassandra decode --verify`: what is wrong in cdc_raw, for people and for programs."""

from __future__ import annotations

import os
from typing import Any

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from penstock.capture.cassandra.node import cassandra_yaml
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.segments.health import DirectoryHealth, IndexState, SegmentHealth, examine
from penstock.capture.cassandra.segments.keystore import KeyStore
from penstock.capture.cassandra.segments.segment import segment_name
from penstock.cli import output
from penstock.cli.cassandra_sources import parse_size
from penstock.cli.places import check_directory
from penstock.errors import InvalidInput, StorageError

_HEADERS = ("segment", "size", "kind", "index", "sections", "entries", "unknown", "changes", "state")


def report(
    paths: list[str], schemas: Schemas, keys: KeyStore | None, limit: str | None, yaml: str | None, *, json: bool
) -> bool:
    """Examine each directory and print what was found; True when nothing is wrong."""
    for path in paths:
        if os.path.isfile(path):
            raise StorageError("--verify wants directories", path=path)
        check_directory(path)
        if not any(segment_name(name) for name in os.listdir(path)):
            raise InvalidInput(f"no commit-log segment here: no file is named CommitLog-<format>-<id>.log: {path}")
    allowed = None if limit is None else parse_size(limit)
    if allowed is None and yaml is not None:
        said = cassandra_yaml.load(yaml).cdc_total_space_bytes
        allowed = cassandra_yaml.default_total_space(paths[0]) if said is None else said
    sound = True
    for number, path in enumerate(paths):
        health = _examined(path, schemas, keys, allowed)
        sound &= health.sound
        if json:
            output.emit(record(health))
        else:
            if number:
                output.line("")
            _print(health)
    return sound


def _examined(path: str, schemas: Schemas, keys: KeyStore | None, limit: int | None) -> DirectoryHealth:
    console = output.progress_console()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    total = sum(entry.stat().st_size for entry in os.scandir(path) if segment_name(entry.name) is not None)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(output.plain(path), total=total)
        return examine(path, schemas, keys=keys, limit=limit, progress=lambda count: progress.advance(task, count))


def _print(health: DirectoryHealth) -> None:
    output.table(_HEADERS, (_row(segment) for segment in health.segments))
    output.line("")
    of = "" if health.limit is None else f" of {output.size(health.limit)}"
    percent = "" if health.limit is None else f" ({100 * health.bytes / health.limit:.1f}%)"
    state = "sound" if health.sound else "NOT SOUND"
    output.line(
        f"{output.plain(health.directory)}: {state}; {output.count(len(health.segments), 'segment')}, "
        f"{output.size(health.bytes)}{of}{percent}"
    )
    for problem in problems(health):
        output.line(f"  {output.plain(problem)}")
    for table, count in health.unknown.items():
        entries = f"{count:,} {'entry' if count == 1 else 'entries'}"
        output.line(f"  note: {entries} of table {table}, whose definition is not here")
    if health.foreign:
        output.line(f"  note: {output.count(health.foreign, 'file')} that is no segment and no index file")


def _row(segment: SegmentHealth) -> tuple[object, ...]:
    kind = segment.encryption or segment.compression or "plain"
    index = segment.index.value
    if segment.index_offset is not None:
        index = f"{index} {segment.index_offset}"
    return (
        segment.file,
        output.size(segment.bytes),
        kind,
        index,
        segment.sections,
        segment.entries,
        segment.unknown,
        segment.changes,
        state_of(segment),
    )


def state_of(segment: SegmentHealth) -> str:
    """One word for a segment."""
    if segment.error is not None:
        return "UNREADABLE"
    if segment.damage:
        return f"DAMAGED in {output.count(len(segment.damage), 'place')}"
    if segment.cut:
        return "CUT"
    if segment.abandoned:
        return "ABANDONED"
    if segment.unused or not (segment.sections or segment.open_tail):
        return "empty"
    return "done" if segment.index is IndexState.COMPLETED else "open"


def problems(health: DirectoryHealth) -> list[str]:
    """All that is wrong, a line each."""
    out = []
    for segment in health.segments:
        if segment.error is not None:
            out.append(str(segment.error))
        for damage in segment.damage:
            where = f"file {damage.file}, offset {damage.offset}, position {damage.position}"
            out.append(f"damaged {damage.what}: {damage.message} ({where})")
        if segment.cut:
            out.append(
                f"{segment.file} is completed up to {segment.index_offset}, but its entries end at {segment.end}"
            )
        if segment.abandoned:
            out.append(f"{segment.file} was never completed, and the node writes to a newer segment")
    out += [f"index file without a segment: {path}" for path in health.orphans]
    if health.full:
        out.append("cdc_raw is full: the node refuses writes to CDC tables, or deletes the oldest segments")
    return out


def record(health: DirectoryHealth) -> dict[str, Any]:
    """The report as JSON."""
    return {
        "directory": health.directory,
        "sound": health.sound,
        "bytes": health.bytes,
        "limit": health.limit,
        "full": health.full,
        "segments": [_segment_record(segment) for segment in health.segments],
        "orphans": health.orphans,
        "foreign": health.foreign,
        "unknown_tables": {str(table): count for table, count in health.unknown.items()},
    }


def _segment_record(segment: SegmentHealth) -> dict[str, Any]:
    return {
        "file": segment.file,
        "format": segment.format,
        "segment": segment.id,
        "bytes": segment.bytes,
        "compression": segment.compression,
        "encryption": segment.encryption,
        "index": segment.index.value,
        "index_offset": segment.index_offset,
        "sections": segment.sections,
        "open_tail": segment.open_tail,
        "end": segment.end,
        "entries": segment.entries,
        "unknown": segment.unknown,
        "changes": segment.changes,
        "state": state_of(segment).split()[0].lower(),
        "sound": segment.sound,
        "damage": [damage._asdict() for damage in segment.damage],
        "error": None if segment.error is None else str(segment.error),
    }
