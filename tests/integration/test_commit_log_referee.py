"""Cassandra's own commit-log reader as the referee: of the same segments, ours takes the same entries.

The segments are genuine: Cassandra's own commit log writes them (tests/java), in formats 7 (4.1 and 5.0), 8 (5.0) and
9 (6.0), with every compressor, and encrypted. Those of format 6 are made by our own writer of the entries of a genuine
one. Each format has the reader of its own version: 3.11's too, where a Java that runs it is here, else 5.0's, which
still reads them. Then the segments are damaged in every way that disks and crashes know, and each copy is read by both.
Where the two differ, what Cassandra takes is foretold exactly (`tests/verdicts.py`); each reason for a difference has a
name, is counted, and may not become more frequent than it is known to be.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from random import Random

import pytest

from bench.commit_log_peer import (
    CACHE,
    VERSION,
    VERSION_OF_6,
    VERSION_OF_7,
    VERSION_OF_9,
    WORKLOAD,
    CommitLogPeer,
)
from penstock.capture.cassandra.schema import file as schema_file
from penstock.capture.cassandra.segments.keystore import KeyStore
from penstock.sandbox.cassandra_jars import has_java
from penstock.sandbox.commit_log.writer import CommitLogWriter
from tests import damaged_segments, referee, verdicts
from tests.counted import RecordProperty, record_verdicts

TABLES = schema_file.load(str(WORKLOAD))
BY_ID = {str(table.id): table for table in TABLES}
COMPRESSORS = ["none", "LZ4Compressor", "SnappyCompressor", "DeflateCompressor", "ZstdCompressor", "NoopCompressor"]
PASSWORD = "cassandra"
ALIAS = "testing:1"
# Plain ones are damaged more often: only there is it known where entries and markers stand.
DAMAGED = {"none": 600, **dict.fromkeys(COMPRESSORS[1:], 100), "encrypted": 200}
SMALL = {"commitlog_segment_size": "1MiB"}
NEWEST = {**SMALL, "storage_compatibility_mode": "NONE"}
# Which version reads and writes a format, with which settings. 3.11's peer only reads.
READERS = {
    6: (VERSION_OF_6, {"commitlog_segment_size_in_mb": "1"}) if has_java(VERSION_OF_6, CACHE) else (VERSION, NEWEST),
    7: (VERSION_OF_7, SMALL),
    8: (VERSION, NEWEST),
    9: (VERSION_OF_9, NEWEST),
}
# The greatest share of damaged copies that may be read in another way, by reason. Where a compressor has a checksum of
# its own over the whole section (Deflate, Zstd), one wrong bit spoils all of it, and most damage hits a section.
SELDOM = dict.fromkeys(("zeros", "crossing", "too long"), 0.03)
MOST = {
    "none": {"parked": 0.14, "zeros": 0.04, "crossing": 0.03, "given up": 0.03, "refused": 0.02, "shadowed": 0.01},
    "LZ4Compressor": {"renumbered": 0.3, "given up": 0.03, "partial": 0.03, **SELDOM},
    "SnappyCompressor": {"renumbered": 0.3, "given up": 0.03, "partial": 0.03, **SELDOM},
    "DeflateCompressor": {"renumbered": 0.65, "given up": 0.03, "partial": 0.08, **SELDOM},
    "ZstdCompressor": {"renumbered": 0.65, "given up": 0.65, "partial": 0.03, **SELDOM},
    "NoopCompressor": {"renumbered": 0.03, "given up": 0.03, "partial": 0.03, **SELDOM},
    "encrypted": {"renumbered": 0.65, "given up": 0.65, "partial": 0.1, "cut": 0.2, **SELDOM},
}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("referee")


@pytest.fixture(scope="module")
def peer(scratch: Path) -> Iterator[CommitLogPeer]:
    with CommitLogPeer(scratch / "peer", settings=SMALL) as running:
        running.schema(WORKLOAD)
        yield running


@pytest.fixture(scope="module")
def peers(scratch: Path) -> Iterator[Callable[[int], CommitLogPeer]]:
    """The peer for each format, started when it is first asked for."""
    with ExitStack() as stack:

        @cache
        def running(format_: int) -> CommitLogPeer:
            version, settings = READERS[format_]
            place = scratch / f"{version}-{format_}"
            peer = stack.enter_context(CommitLogPeer(place, version=version, settings=settings))
            peer.schema(WORKLOAD)
            return peer

        yield running


@pytest.fixture(scope="module")
def key_store(scratch: Path) -> Path:
    """A key store as keytool makes it."""
    path = scratch / "keys.jceks"
    command = ["keytool", "-genseckey", "-keystore", str(path), "-storetype", "JCEKS", "-storepass", PASSWORD]
    command += ["-keypass", PASSWORD, "-alias", ALIAS, "-keyalg", "AES", "-keysize", "128"]
    subprocess.run(command, check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def encrypting_peer(scratch: Path, key_store: Path) -> Iterator[CommitLogPeer]:
    parameters = f"keystore: {key_store}, keystore_password: {PASSWORD}, store_type: JCEKS, key_password: {PASSWORD}"
    provider = f"class_name: org.apache.cassandra.security.JKSKeyProvider, parameters: [{{{parameters}}}]"
    settings = f"enabled: true, chunk_length_kb: 1, cipher: AES/CBC/PKCS5Padding, key_alias: '{ALIAS}'"
    options = {**SMALL, "transparent_data_encryption_options": f"{{{settings}, key_provider: [{{{provider}}}]}}"}
    with CommitLogPeer(scratch / "encrypting", settings=options) as running:
        running.schema(WORKLOAD)
        yield running


def check_same(peer: CommitLogPeer, path: Path, mutations: int, keys: KeyStore | None = None) -> None:
    lines, summary = peer.dump(path)
    assert summary["entries"] == mutations
    assert summary["errors"] == []
    reading = referee.decoded(path, TABLES, keys)
    assert reading.damage == []
    assert reading.entries == referee.expected(lines, BY_ID, path.name)


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("workload", ["mixed", "small"])
def test_what_cassandra_writes_reads_alike(peer: CommitLogPeer, tmp_path: Path, compressor: str, workload: str) -> None:
    path, *_ = peer.write(tmp_path, workload=workload, mutations=300, compression=compressor, sync=40)
    check_same(peer, path, 300)


@pytest.mark.parametrize("format_", [7, 8, 9])
def test_what_each_version_writes_reads_alike(
    peers: Callable[[int], CommitLogPeer], tmp_path: Path, format_: int
) -> None:
    for compressor in COMPRESSORS:
        path, *_ = peers(format_).write(
            tmp_path / compressor, workload="mixed", mutations=200, compression=compressor, sync=40
        )
        assert path.name.startswith(f"CommitLog-{format_}-")
        check_same(peers(format_), path, 200)


def test_an_encrypted_log_reads_alike(encrypting_peer: CommitLogPeer, key_store: Path, tmp_path: Path) -> None:
    path, *_ = encrypting_peer.write(tmp_path, workload="mixed", mutations=300, sync=40)
    check_same(encrypting_peer, path, 300, KeyStore.open(str(key_store), PASSWORD))


def in_format_6(path: Path, directory: Path) -> Path:
    """The entries of a segment in one as 3.11 writes it, a section to every five."""
    by_name = {table.schema.table: table for table in TABLES}
    log = CommitLogWriter(
        str(directory / "commitlog"), str(directory / "cdc_raw"), format=6, segment_bytes=1 << 20, durable=False
    )
    for number, entry in enumerate(referee.decoded(path, TABLES).entries, 1):
        ((table, change),) = entry.changes
        log.append([(by_name[table], [change])])
        if number % 5 == 0:
            log.mark()
    made = Path(log.segment)
    log.close()
    return made


def check_damaged(
    peer: CommitLogPeer,
    segment: damaged_segments.Segment,
    directory: Path,
    record_property: RecordProperty,
    keys: KeyStore | None = None,
) -> None:
    """Damaged copies of a segment: of each the same is taken, or what is foretold."""
    (directory / "whole").mkdir()
    whole = directory / "whole" / segment.name
    whole.write_bytes(segment.data)
    good = referee.decoded(whole, TABLES, keys).entries
    random = Random(f"{segment.kind} damaged")
    paths, kinds = [], []
    count = DAMAGED[segment.kind]
    for number in range(count):
        kind, data = damaged_segments.damaged(segment, random)
        (directory / str(number)).mkdir()
        # The name stays: it has the id that the header repeats.
        paths.append(directory / str(number) / segment.name)
        paths[-1].write_bytes(data)
        kinds.append(kind)
    seen: Counter[str] = Counter(segments=count)
    problems, hurt = [], 0
    for path, kind, lines in zip(paths, kinds, peer.dump_all(paths), strict=True):
        # Only where the checksums were made to fit can a value be nonsense.
        senseless: list[int] | None = [] if kind == "payload" else None
        theirs = referee.expected(lines[:-1], BY_ID, path.name, senseless)
        reading = referee.decoded(path, TABLES, keys)
        verdict = verdicts.judge(reading, theirs, lines[-1], good, path.read_bytes(), senseless or ())
        if verdict.problem is not None:
            problems.append(f"{path} ({kind}): {verdict.problem}; {lines[-1]}; {reading.damage}")
        seen.update(verdict.reasons or [verdicts.ALIKE])
        hurt += bool(reading.damage or reading.parked)
    record_verdicts(record_property, seen)
    assert not problems, problems[0]
    # Most damage hits something.
    assert hurt > count / 2
    shares = {reason: seen[reason] / count for reason in verdicts.REASONS if seen[reason]}
    assert {reason: share for reason, share in shares.items() if share > MOST[segment.kind].get(reason, 0)} == {}


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("format_", [7, 8, 9])
def test_of_damaged_segments_the_same_entries_are_taken(
    peers: Callable[[int], CommitLogPeer],
    tmp_path: Path,
    format_: int,
    compressor: str,
    record_property: RecordProperty,
) -> None:
    peer = peers(format_)
    path, *_ = peer.write(tmp_path / "good", workload="mixed", mutations=25, compression=compressor, sync=5)
    check_damaged(peer, damaged_segments.load(path, compressor), tmp_path, record_property)


def test_of_damaged_segments_of_3_11_the_same_entries_are_taken(
    peers: Callable[[int], CommitLogPeer], tmp_path: Path, record_property: RecordProperty
) -> None:
    peer = peers(6)
    genuine, *_ = peers(8).write(tmp_path / "good", workload="mixed", mutations=25, sync=5)
    path = in_format_6(genuine, tmp_path)
    check_same(peer, path, 25)
    check_damaged(peer, damaged_segments.load(path, "none"), tmp_path, record_property)


def test_of_damaged_encrypted_segments_the_same_entries_are_taken(
    encrypting_peer: CommitLogPeer, key_store: Path, tmp_path: Path, record_property: RecordProperty
) -> None:
    keys = KeyStore.open(str(key_store), PASSWORD)
    path, *_ = encrypting_peer.write(tmp_path / "good", workload="mixed", mutations=25, sync=5)
    check_damaged(encrypting_peer, damaged_segments.load(path, "encrypted", keys), tmp_path, record_property, keys)


def test_every_reason_for_a_difference_has_a_limit() -> None:
    assert MOST.keys() == DAMAGED.keys()
    assert {reason for most in MOST.values() for reason in most} == set(verdicts.REASONS)
