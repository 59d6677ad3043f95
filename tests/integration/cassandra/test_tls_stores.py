"""Java's own stores, made by keytool, serve for TLS: a handshake in which both sides show their certificate."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from penstock.capture.cassandra.node import tls_stores
from penstock.capture.cassandra.node.connection import tls_context
from penstock.errors import InvalidSetting, KeyStoreError
from penstock.settings import CassandraSettings

PASSWORD = "hunter2-canary"


def keytool(*arguments: str) -> None:
    command = ["keytool", "-J-XX:TieredStopAtLevel=1", "-J-Dfile.encoding=UTF-8", "-J-Dsun.jnu.encoding=UTF-8"]
    subprocess.run([*command, *arguments], check=True, capture_output=True, text=True)


@pytest.fixture(scope="module", params=["JKS", "PKCS12"])
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a key store, a trust store that trusts it, and the password in a file, which may be any text."""
    kind = str(request.param)
    directory = tmp_path_factory.mktemp(kind)
    (directory / "password").write_text(PASSWORD, encoding="utf-8")
    secret = ["-storetype", kind, "-storepass:file", str(directory / "password")]
    # A JKS store keeps each key under a password of its own; a client has only one to give.
    key_secret = ["-keypass:file", str(directory / "password")] if kind == "JKS" else []
    key, trust, certificate = (str(directory / name) for name in ("key.store", "trust.store", "node.pem"))
    names = ["-dname", "CN=node1", "-ext", "san=ip:127.0.0.1", "-keyalg", "EC", "-groupname", "secp256r1"]
    keytool("-genkeypair", "-alias", "node", *names, "-keystore", key, *secret, *key_secret)
    keytool("-exportcert", "-rfc", "-alias", "node", "-keystore", key, *secret, "-file", certificate)
    keytool("-importcert", "-noprompt", "-alias", "node", "-file", certificate, "-keystore", trust, *secret)
    return directory


def client(stores: Path, **changes: object) -> ssl.SSLContext:
    given = {
        "tls": True,
        "tls_trust_store_file": stores / "trust.store",
        "tls_trust_store_password": PASSWORD,
        "tls_key_store_file": stores / "key.store",
        "tls_key_store_password": PASSWORD,
    }
    context = tls_context(CassandraSettings.model_validate(given | changes))
    assert context is not None
    return context


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """A handshake without sockets. Returns the server's side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    done = [False, False]
    for _ in range(10):
        for i, end in enumerate(ends):
            if not done[i]:
                try:
                    end.do_handshake()
                    done[i] = True
                except ssl.SSLWantReadError:
                    pass
    assert all(done)
    return ends[1]


def test_both_sides_show_their_certificate(stores: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_stores.read(stores / "key.store", PASSWORD).load_client(server, stores / "key.store")
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(stores / "node.pem")
    shown = shake_hands(server, client(stores)).getpeercert(binary_form=True)
    assert shown == ssl.PEM_cert_to_DER_cert((stores / "node.pem").read_text())


def test_a_server_that_is_not_in_the_trust_store_is_not_trusted(stores: Path, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "other.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=x"]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client(stores))


def test_a_wrong_password_is_refused_and_not_shown(stores: Path) -> None:
    for name in ("trust", "key"):
        with pytest.raises(KeyStoreError, match="password is wrong, or the store is damaged") as refusal:
            client(stores, **{f"tls_{name}_store_password": "canary"})
        assert refusal.value.place == {"file": stores / f"{name}.store"}
        assert "canary" not in str(refusal.value)


def test_a_store_of_the_other_purpose_is_refused(stores: Path) -> None:
    with pytest.raises(KeyStoreError, match="has no private key"):
        client(stores, tls_key_store_file=stores / "trust.store")
    with pytest.raises(InvalidSetting, match="no certificate to trust"):
        client(stores, tls_trust_store_file=stores / "key.store")


def test_damaged_stores_are_refused(stores: Path, tmp_path: Path) -> None:
    good = (stores / "key.store").read_bytes()
    file = tmp_path / "store"
    for at in range(0, len(good), 7):
        file.write_bytes(good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1 :])
        with pytest.raises(KeyStoreError):
            tls_stores.read(file, PASSWORD)
        file.write_bytes(good[:at])
        with pytest.raises(KeyStoreError):
            tls_stores.read(file, PASSWORD)


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "store"
    file.write_bytes(b"\xce\xce\xce\xce\x00\x00\x00\x02")
    with pytest.raises(KeyStoreError, match="JCEKS store is not for TLS"):
        tls_stores.read(file, PASSWORD)
    file.write_bytes(b"nothing")
    with pytest.raises(KeyStoreError, match="neither a JKS nor a PKCS12"):
        tls_stores.read(file, PASSWORD)
    with pytest.raises(InvalidSetting, match="cannot read the store: No such file"):
        tls_stores.read(tmp_path / "none", PASSWORD)
