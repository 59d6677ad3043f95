"""SegmentDirectory: which commit-log segments there are, and what their index files say.

Cassandra makes, links, renames and deletes files here while we look, so every look is a fresh list, and a file may be
gone when it is opened. Segments come from `cdc_raw` and, where the operator wants that, from `commitlog` as well; one
that stands in both is taken from `cdc_raw`. Whatever is no segment and no index file is counted and left alone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from penstock.capture.cassandra.segments.segment import (
    SegmentIndex,
    SegmentName,
    parse_index,
    segment_name,
    segment_of_index,
)
from penstock.log.refusal import refused
from penstock.system.descriptors import patiently

# An index file is a number and a word; what is larger is not one.
_INDEX_BYTES_MAX = 64


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """One segment as the last look found it."""

    name: SegmentName
    path: str
    bytes: int
    in_cdc_raw: bool
    # Its index file in cdc_raw, if there is one.
    index_path: str | None = None

    @property
    def id(self) -> int:
        return self.name.id

    @property
    def is_moved(self) -> bool:
        """Whether it got here when nobody wrote to it any more: so it is up to 3.11, which has no index files."""
        return self.in_cdc_raw and self.name.format <= 6


@dataclass(frozen=True, slots=True)
class Listing:
    """One look at the directories."""

    # By id, lowest first.
    segments: tuple[SegmentFile, ...] = ()
    # Everything in cdc_raw, as the node counts it against its limit.
    bytes: int = 0
    foreign: int = 0
    # Index files without a segment, by the segment's id.
    orphans: tuple[tuple[int, str], ...] = ()


@dataclass
class SegmentDirectory:
    """The directories of one node. Only looks; what happens to files is the transfer's affair."""

    cdc_raw: str
    commitlog: str | None = None
    _indexes: dict[int, SegmentIndex] = field(default_factory=dict)

    def scan(self) -> Listing:
        """What is there now. Raises what the file system refuses when cdc_raw cannot be listed."""
        segments: dict[int, SegmentFile] = {}
        indexes: dict[str, str] = {}
        total = foreign = 0
        for entry, size in _files(self.cdc_raw):
            total += size
            name = segment_name(entry.name)
            of = segment_of_index(entry.name)
            if name is not None and name.id not in segments:
                segments[name.id] = SegmentFile(name, entry.path, size, in_cdc_raw=True)
            elif of is not None:
                indexes[of] = entry.path
            else:
                foreign += 1
        for entry, size in _files(self.commitlog) if self.commitlog is not None else ():
            name = segment_name(entry.name)
            if name is not None and name.id not in segments:
                segments[name.id] = SegmentFile(name, entry.path, size, in_cdc_raw=False)
        found = []
        for _, file in sorted(segments.items()):
            index = indexes.pop(file.name.name, None)
            found.append(SegmentFile(file.name, file.path, file.bytes, file.in_cdc_raw, index))
        orphans = tuple((name.id, path) for of, path in indexes.items() if (name := segment_name(of)) is not None)
        self._indexes = {id_: index for id_, index in self._indexes.items() if id_ in segments}
        return Listing(tuple(found), total, foreign, orphans)

    def index(self, file: SegmentFile) -> SegmentIndex | None:
        """How far the node says it has synced the segment; None when it has said nothing yet.

        The file is rewritten in place, so a look may find it empty or cut. What was known before stays known then: the
        offset never falls, and a segment that was completed stays so.
        """
        known = self._indexes.get(file.id)
        if file.index_path is None or (known is not None and known.completed):
            return known
        try:
            with open(file.index_path, "rb") as opened:
                said = parse_index(opened.read(_INDEX_BYTES_MAX))
        except OSError:
            # It went with its segment, or cannot be read: no news.
            return known
        if said is not None:
            offset = max(said.offset, known.offset if known is not None else 0)
            known = self._indexes[file.id] = SegmentIndex(offset, said.completed)
        return known


def _files(directory: str) -> list[tuple[os.DirEntry[str], int]]:
    """The files of a directory with their sizes. Links, pipes and directories are none of ours."""
    try:
        with patiently(lambda: os.scandir(directory)) as entries:
            found = []
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if entry.is_file(follow_symlinks=False):
                    found.append((entry, status.st_size))
            return found
    except OSError as error:
        reason = refused(error, "looking for segments", directory)
        raise type(reason)(reason.message, directory=directory) from error
