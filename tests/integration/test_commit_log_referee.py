"""Cassandra's own commit-log reader as the referee: of the same segments, ours takes the same entries.

The segments are genuine: Cassandra's own commit log writes them (tests/java), in every format that a version of it can
write and with every compressor, and encrypted. Then they are damaged in every way that disks and crashes know.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from bench.commit_log_peer import VERSION, VERSION_OF_9, WORKLOAD, CommitLogPeer
from penstock.capture.cassandra.schema import file as schema_file
from penstock.capture.cassandra.segments.keystore import KeyStore
from tests import damaged_segments, referee

TABLES = schema_file.load(str(WORKLOAD))
BY_ID = {str(table.id): table for table in TABLES}
COMPRESSORS = ["none", "LZ4Compressor", "SnappyCompressor", "DeflateCompressor", "ZstdCompressor", "NoopCompressor"]
PASSWORD = "cassandra"
ALIAS = "testing:1"
# Plain ones are damaged more often: only there is it known where entries and markers stand.
DAMAGED = {"none": 1100, **dict.fromkeys(COMPRESSORS[1:], 200)}
DAMAGED_ENCRYPTED = 200
SMALL = {"commitlog_segment_size": "1MiB"}
NEWEST = {**SMALL, "storage_compatibility_mode": "NONE"}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("referee")


@pytest.fixture(scope="module")
def peer(scratch: Path) -> Iterator[CommitLogPeer]:
    with CommitLogPeer(scratch / "peer", settings=SMALL) as running:
        running.schema(WORKLOAD)
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


@pytest.mark.parametrize(("version", "format_"), [(VERSION, 8), (VERSION_OF_9, 9)])
def test_the_newer_formats_read_alike(tmp_path: Path, version: str, format_: int) -> None:
    with CommitLogPeer(tmp_path / "peer", version=version, settings=NEWEST) as peer:
        peer.schema(WORKLOAD)
        for compressor in COMPRESSORS:
            path, *_ = peer.write(
                tmp_path / compressor, workload="mixed", mutations=200, compression=compressor, sync=40
            )
            assert path.name.startswith(f"CommitLog-{format_}-")
            check_same(peer, path, 200)


def test_an_encrypted_log_reads_alike(encrypting_peer: CommitLogPeer, key_store: Path, tmp_path: Path) -> None:
    path, *_ = encrypting_peer.write(tmp_path, workload="mixed", mutations=300, sync=40)
    check_same(encrypting_peer, path, 300, KeyStore.open(str(key_store), PASSWORD))


def check_damaged(
    peer: CommitLogPeer, segment: damaged_segments.Segment, count: int, directory: Path, keys: KeyStore | None = None
) -> None:
    """Damaged copies of a segment: the same entries are taken from each."""
    (directory / "whole").mkdir()
    whole = directory / "whole" / segment.name
    whole.write_bytes(segment.data)
    good = referee.decoded(whole, TABLES, keys).entries
    random = Random(f"{segment.kind} damaged")
    paths, kinds = [], []
    for number in range(count):
        kind, data = damaged_segments.damaged(segment, random)
        (directory / str(number)).mkdir()
        # The name stays: it has the id that the header repeats.
        paths.append(directory / str(number) / segment.name)
        paths[-1].write_bytes(data)
        kinds.append(kind)
    seen: Counter[str] = Counter()
    for path, kind, lines in zip(paths, kinds, peer.dump_all(paths), strict=True):
        crafted = kind == "payload"
        theirs = referee.expected(lines[:-1], BY_ID, path.name, crafted=crafted)
        reading = referee.decoded(path, TABLES, keys)
        problem = referee.difference(reading, theirs, lines[-1], good, crafted=crafted)
        assert problem is None, f"{path} ({kind}): {problem}; {lines[-1]}; {reading.damage}"
        seen["hurt" if reading.damage or reading.parked else "whole"] += 1
    # Most damage hits something.
    assert seen["hurt"] > seen["whole"]


@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_of_damaged_segments_the_same_entries_are_taken(peer: CommitLogPeer, tmp_path: Path, compressor: str) -> None:
    path, *_ = peer.write(tmp_path / "good", workload="mixed", mutations=25, compression=compressor, sync=5)
    segment = damaged_segments.load(path, compressor)
    check_damaged(peer, segment, DAMAGED[compressor], tmp_path)


def test_of_damaged_encrypted_segments_the_same_entries_are_taken(
    encrypting_peer: CommitLogPeer, key_store: Path, tmp_path: Path
) -> None:
    keys = KeyStore.open(str(key_store), PASSWORD)
    path, *_ = encrypting_peer.write(tmp_path / "good", workload="mixed", mutations=25, sync=5)
    segment = damaged_segments.load(path, "encrypted", keys)
    check_damaged(encrypting_peer, segment, DAMAGED_ENCRYPTED, tmp_path, keys)
