"""Key stores that Java's own keytool made, and what is wrong with others."""

from __future__ import annotations

import builtins
import os
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.capture.cassandra.segments.keys import jceks, pkcs12
from penstock.capture.cassandra.segments.keystore import STORE_BYTES_MAX, KeyStore
from penstock.capture.cassandra.segments.sections import Section, SegmentReader
from penstock.capture.cassandra.segments.segment import Encryption
from penstock.errors import KeyStoreError, StorageError
from penstock.sandbox.commit_log.segment_writer import SegmentKind, SegmentWriter

PASSWORD = "changeit1"
OTHER = "changeit2"
# Runs keytool for every line that is read, in one Java, and prints the keys of the stores as Java itself has them.
PROGRAM = """
import java.io.*; import java.security.*; import java.util.*;
public class Keys { public static void main(String[] arguments) throws Exception {
  for (String line : new BufferedReader(new InputStreamReader(System.in)).lines().toArray(String[]::new)) {
    String[] words = line.split("\t");
    if (words[0].equals("legacy")) { System.setProperty("keystore.pkcs12.legacy", ""); continue; }
    if (!words[0].equals("key")) { sun.security.tools.keytool.Main.main(words); continue; }
    KeyStore store = KeyStore.getInstance(words[1]);
    try (InputStream file = new FileInputStream(words[2])) { store.load(file, "changeit1".toCharArray()); }
    byte[] key = store.getKey(words[3], words[4].toCharArray()).getEncoded();
    System.out.println(HexFormat.of().formatHex(key)); } } }
"""
WANTED = [
    ("JCEKS", "jceks", "testing:1", PASSWORD),
    ("JCEKS", "jceks", "other password", OTHER),
    ("JCEKS", "jceks", "triple", PASSWORD),
    ("PKCS12", "pkcs12", "testing:1", PASSWORD),
    ("PKCS12", "pkcs12-legacy", "testing:1", PASSWORD),
]


class Made(NamedTuple):
    """Stores by kind, and their secret keys by kind and alias."""

    stores: dict[str, Path]
    keys: dict[str, bytes]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A store of every kind, with a secret key `Testing:1` and a key pair."""
    root = tmp_path_factory.mktemp("stores")
    stores = {name: root / name for name in ("jceks", "pkcs12", "pkcs12-legacy", "jks")}

    def secret(name: str, kind: str, alias: str, *more: str, password: str = PASSWORD) -> list[str]:
        named = ["-genseckey", "-keystore", str(stores[name]), "-storetype", kind, "-storepass", PASSWORD]
        return [*named, "-keypass", password, "-alias", alias, "-keyalg", *more]

    def pair(name: str, kind: str) -> list[str]:
        named = ["-genkeypair", "-keystore", str(stores[name]), "-storetype", kind, "-storepass", PASSWORD]
        return [*named, "-keypass", PASSWORD, "-alias", "pair", "-keyalg", "EC", "-dname", "CN=node"]

    lines = [
        secret("jceks", "JCEKS", "Testing:1", "AES", "-keysize", "128"),
        secret("jceks", "JCEKS", "other password", "AES", "-keysize", "192", password=OTHER),
        secret("jceks", "JCEKS", "triple", "DESede"),
        pair("jceks", "JCEKS"),
        secret("pkcs12", "PKCS12", "Testing:1", "AES", "-keysize", "256"),
        pair("pkcs12", "PKCS12"),
        pair("jks", "JKS"),
        ["legacy"],
        secret("pkcs12-legacy", "PKCS12", "Testing:1", "AES", "-keysize", "256"),
        pair("pkcs12-legacy", "PKCS12"),
        *(["key", kind, str(stores[name]), alias, password] for kind, name, alias, password in WANTED),
    ]
    source = root / "Keys.java"
    source.write_text(PROGRAM, encoding="ascii")
    command = ["java", "--add-exports=java.base/sun.security.tools.keytool=ALL-UNNAMED", str(source)]
    text = "".join("\t".join(line) + "\n" for line in lines)
    done = subprocess.run(command, input=text, check=True, capture_output=True, text=True, timeout=300)
    keys = [bytes.fromhex(line) for line in done.stdout.split("\n") if re.fullmatch(r"[0-9a-f]{32,}", line)]
    named = zip(WANTED, keys, strict=True)
    return Made(stores, {f"{name}/{alias}": key for (_, name, alias, _), key in named})


@pytest.fixture
def stores(made: Made) -> dict[str, Path]:
    return made.stores


@pytest.fixture
def java_keys(made: Made) -> dict[str, bytes]:
    return made.keys


@pytest.mark.parametrize("kind", ["jceks", "pkcs12", "pkcs12-legacy"])
def test_a_secret_key_is_what_java_says(stores: dict[str, Path], java_keys: dict[str, bytes], kind: str) -> None:
    store = KeyStore.open(str(stores[kind]), PASSWORD)
    expected = java_keys[f"{kind}/testing:1"]
    # Java stores the alias in small letters, and Cassandra's settings may have it otherwise.
    assert store.key("testing:1") == store.key("Testing:1") == expected
    assert {"testing:1", "pair"} <= set(store.aliases)


def test_a_key_may_have_a_password_of_its_own(stores: dict[str, Path], java_keys: dict[str, bytes]) -> None:
    path = str(stores["jceks"])
    with pytest.raises(KeyStoreError, match="password differs") as caught:
        KeyStore.open(path, PASSWORD).key("other password")
    assert PASSWORD not in str(caught.value)
    store = KeyStore.open(path, PASSWORD, key_password=OTHER)
    assert store.key("other password") == java_keys["jceks/other password"]


def test_keys_that_java_writes_in_another_way_are_read(stores: dict[str, Path], java_keys: dict[str, bytes]) -> None:
    assert KeyStore.open(str(stores["jceks"]), PASSWORD).key("triple") == java_keys["jceks/triple"]


@pytest.mark.parametrize("kind", ["jceks", "pkcs12", "pkcs12-legacy"])
def test_a_wrong_password_is_told_and_not_repeated(stores: dict[str, Path], kind: str) -> None:
    with pytest.raises(KeyStoreError, match="password is wrong") as caught:
        KeyStore.open(str(stores[kind]), "not the one")
    assert "not the one" not in str(caught.value)
    assert str(stores[kind]) in str(caught.value)


@pytest.mark.parametrize("kind", ["jceks", "pkcs12", "pkcs12-legacy"])
def test_a_missing_alias_and_a_key_pair_are_told(stores: dict[str, Path], kind: str) -> None:
    store = KeyStore.open(str(stores[kind]), PASSWORD)
    with pytest.raises(KeyStoreError, match=r"no such alias .*nobody"):
        store.key("nobody")
    with pytest.raises(KeyStoreError, match=r"not a secret key .*pair"):
        store.key("pair")


def test_a_jks_store_cannot_hold_the_key(stores: dict[str, Path]) -> None:
    with pytest.raises(KeyStoreError, match="JKS store cannot hold a secret key"):
        KeyStore.open(str(stores["jks"]), PASSWORD)


def test_what_is_no_key_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with pytest.raises(StorageError, match="no such file"):
        KeyStore.open(str(path), PASSWORD)
    for data in (b"", b"hello", b"\x30\x82" + bytes(50), bytes(100)):
        path.write_bytes(data)
        with pytest.raises(KeyStoreError, match="neither a JCEKS nor a PKCS12"):
            KeyStore.open(str(path), PASSWORD)
    with path.open("wb") as file:
        file.truncate(STORE_BYTES_MAX + 1)
    with pytest.raises(KeyStoreError, match="more than"):
        KeyStore.open(str(path), PASSWORD)


@pytest.mark.parametrize("kind", ["jceks", "pkcs12", "pkcs12-legacy"])
def test_a_store_that_is_cut_is_refused(stores: dict[str, Path], tmp_path: Path, kind: str) -> None:
    data = stores[kind].read_bytes()
    for length in (5, 30, len(data) // 2, len(data) - 1):
        path = tmp_path / "cut"
        path.write_bytes(data[:length])
        with pytest.raises(KeyStoreError):
            KeyStore.open(str(path), PASSWORD)


def test_entries_of_a_store_are_read_up_to_every_cut(stores: dict[str, Path]) -> None:
    data = stores["jceks"].read_bytes()
    for length in range(len(data) - 20):
        with pytest.raises(ValueError, match=r".*"):
            jceks.read_entries(data[:length] + bytes(20))
    whole = stores["pkcs12"].read_bytes()
    for length in range(0, len(whole), 7):
        with pytest.raises((ValueError, StopIteration)):
            pkcs12.read_entries(whole[:length], PASSWORD)


def test_without_the_package_the_message_says_what_to_install(
    stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(KeyStoreError, match=r"pip install \"penstock\[cassandra\]\""):
        KeyStore.open(str(stores["jceks"]), PASSWORD)


def test_a_segment_is_read_with_the_key_of_a_store(
    stores: dict[str, Path], java_keys: dict[str, bytes], tmp_path: Path
) -> None:
    encryption = Encryption("AES/CBC/PKCS5Padding", "Testing:1", os.urandom(16))
    kind = SegmentKind(encryption=encryption, key=java_keys["jceks/testing:1"])
    segment = SegmentWriter(f"{tmp_path}/CommitLog-7-5.log", 5, kind, 1 << 16, durable=False)
    segment.append(b"a mutation of some bytes")
    segment.close()
    with SegmentReader(segment.path, keys=KeyStore.open(str(stores["jceks"]), PASSWORD)) as reader:
        (section,) = reader.sections()
    assert isinstance(section, Section)
    assert bytes(section.data[8:-4]) == b"a mutation of some bytes"
