"""Java's trust stores and key stores, for TLS to the node.

Python's TLS knows PEM files only, while files written for a Java driver name JKS or PKCS #12 stores. These are read
into memory: the certificates to trust, and the client's own certificate with its key. A private key never touches the
disk. Wrong passwords and damage raise KeyStoreError with the file's name; no message ever holds a password.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import ssl
import struct
from dataclasses import dataclass, field
from pathlib import Path

from penstock.capture.cassandra.segments.keys import der
from penstock.errors import InvalidSetting, KeyStoreError

STORE_BYTES_MAX = 16 << 20
_MAGIC_JKS = b"\xfe\xed\xfe\xed"
_MAGIC_JCEKS = b"\xce\xce\xce\xce"
_WHITENER = b"Mighty Aphrodite"
_DIGEST_BYTES = 20
_PRIVATE, _CERTIFICATE = 1, 2
_ENTRIES_MAX = 100_000
_CHAIN_MAX = 100


@dataclass(frozen=True, slots=True)
class TlsStore:
    """What a store holds, in DER: certificates to trust, and a private key (PKCS #8) with its chain."""

    trusted: tuple[bytes, ...] = ()
    chain: tuple[bytes, ...] = ()
    key: bytes | None = field(default=None, repr=False)

    def load_client(self, context: ssl.SSLContext, file: Path) -> None:
        """Let a context show this store's certificate. OpenSSL wants a file, so it gets one that is only in memory."""
        if self.key is None:
            raise KeyStoreError("the key store has no private key", file=file)
        parts = [_pem("CERTIFICATE", certificate) for certificate in self.chain]
        descriptor = os.memfd_create("penstock-tls")
        try:
            with open(descriptor, "wb", closefd=False) as memory:
                memory.write("".join([*parts, _pem("PRIVATE KEY", self.key)]).encode("ascii"))
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        except ssl.SSLError as error:
            raise KeyStoreError("the key store's certificate and key cannot be used", file=file) from error
        finally:
            os.close(descriptor)


def is_pem(file: Path) -> bool:
    """Whether a file is PEM text rather than a store."""
    return b"-----BEGIN" in _read(file)


def read(file: Path, password: str) -> TlsStore:
    """Open a store of either kind."""
    data = _read(file)
    try:
        if data[:4] == _MAGIC_JKS:
            return _read_jks(data, password, file)
        if data[:1] == b"\x30":
            return _read_pkcs12(data, password)
    except (ValueError, struct.error, IndexError) as error:
        raise KeyStoreError("the store's password is wrong, or the store is damaged", file=file) from error
    if data[:4] == _MAGIC_JCEKS:
        raise KeyStoreError("a JCEKS store is not for TLS: make it PKCS12 with keytool -importkeystore", file=file)
    raise KeyStoreError("neither a JKS nor a PKCS12 store", file=file)


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            data = opened.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidSetting(f"cannot read the store: {error.strerror}", file=file) from error
    if len(data) > STORE_BYTES_MAX:
        raise KeyStoreError(f"a store of more than {STORE_BYTES_MAX} bytes", file=file)
    return data


def _read_pkcs12(data: bytes, password: str) -> TlsStore:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    store = load_pkcs12(data, password.encode("utf-8"))
    others = tuple(entry.certificate.public_bytes(Encoding.DER) for entry in store.additional_certs)
    if store.key is None or store.cert is None:
        alone = () if store.cert is None else (store.cert.certificate.public_bytes(Encoding.DER),)
        return TlsStore(trusted=(*alone, *others))
    own = store.cert.certificate.public_bytes(Encoding.DER)
    key = store.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return TlsStore(trusted=others, chain=(own, *others), key=key)


def _read_jks(data: bytes, password: str, file: Path) -> TlsStore:
    secret = password.encode("utf-16-be")
    body, stored = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if not hmac.compare_digest(_sha1(secret, _WHITENER, body), stored):
        raise KeyStoreError("the store's password is wrong, or the store is damaged", file=file)
    cursor = _Cursor(body)
    _, version, count = cursor.number(), cursor.number(), cursor.number()
    if version not in (1, 2) or not 0 <= count <= _ENTRIES_MAX:
        raise ValueError("not a JKS store")
    trusted: list[bytes] = []
    chain: tuple[bytes, ...] = ()
    key = None
    for _ in range(count):
        tag, _alias, _date = cursor.number(), cursor.text(), cursor.take(8)
        if tag == _CERTIFICATE:
            trusted.append(cursor.certificate(version))
        elif tag == _PRIVATE:
            sealed, length = cursor.block(), cursor.number()
            if not 0 <= length <= _CHAIN_MAX:
                raise ValueError("a chain without end")
            certificates = tuple(cursor.certificate(version) for _ in range(length))
            # A store may hold several keys; a client shows the first, as Java's key manager usually does.
            if key is None:
                key, chain = _unsealed(sealed, secret), certificates
        else:
            raise ValueError("a JKS entry of an unknown kind")
    return TlsStore(tuple(trusted), chain, key)


def _unsealed(sealed: bytes, secret: bytes) -> bytes:
    """A private key, which Sun's own cipher seals: the key is XORed with a chain of digests of the password."""
    _algorithm, content = der.sequence(memoryview(sealed))
    data = bytes(der.octets(content))
    digest, hidden, check = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    stream = b""
    while len(stream) < len(hidden):
        digest = _sha1(secret, digest)
        stream += digest
    key = bytes(a ^ b for a, b in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(_sha1(secret, key), check):
        raise ValueError("the key's password is another")
    return key


def _sha1(*parts: bytes) -> bytes:
    # The format's own choice; it vouches for a password, not for a signature.
    return hashlib.sha1(b"".join(parts), usedforsecurity=False).digest()


def _pem(kind: str, data: bytes) -> str:
    return ssl.DER_cert_to_PEM_cert(data).replace("CERTIFICATE", kind)


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self._at:
            raise ValueError("the store ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def text(self) -> bytes:
        return self.take(int.from_bytes(self.take(2), "big"))

    def block(self) -> bytes:
        return self.take(self.number())

    def certificate(self, version: int) -> bytes:
        if version == 2:
            self.text()
        return self.block()
