"""JCEKS, Sun's own key store: a list of entries under one digest, secret keys sealed one by one.

A secret key is a serialised Java object, sealed with PBEWithMD5AndTripleDES under the key's password. JKS, the older
form of the same container, has no entries for secret keys.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass

from penstock.capture.cassandra.segments.keys import der
from penstock.capture.cassandra.segments.keys.java_objects import JavaObject, read_object

MAGIC = b"\xce\xce\xce\xce"
MAGIC_JKS = b"\xfe\xed\xfe\xed"
_SALT = b"Mighty Aphrodite"
_DIGEST_BYTES = 20
_PRIVATE, _CERTIFICATE, _SECRET = 1, 2, 3
_ENTRIES_MAX = 100_000
# Java refuses more itself.
_ITERATIONS_MAX = 5_000_000
_SEALED_WITH = "PBEWithMD5AndTripleDES"


@dataclass(frozen=True, slots=True)
class SealedKey:
    """A secret key as it stands in the store."""

    parameters: bytes
    content: bytes
    algorithm: str


def digest_fits(data: bytes, password: str) -> bool:
    """Whether the password is the store's."""
    body, stored = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    # The format's own choice; it vouches for the password, not for a signature.
    made = hashlib.sha1(password.encode("utf-16-be") + _SALT + body, usedforsecurity=False).digest()
    return hmac.compare_digest(made, stored)


def read_entries(data: bytes) -> dict[str, SealedKey | None]:
    """The entries by alias; None for a private key or a certificate. Raises ValueError when it is no such store."""
    view = memoryview(data)[:-_DIGEST_BYTES]
    reader = _Reader(view)
    magic, version, count = reader.take(4), reader.number(">i"), reader.number(">i")
    if magic not in (MAGIC, MAGIC_JKS) or version not in (1, 2) or not 0 <= count <= _ENTRIES_MAX:
        raise ValueError("not a JCEKS key store")
    found: dict[str, SealedKey | None] = {}
    for _ in range(count):
        tag, alias, _date = reader.number(">i"), reader.text(), reader.take(8)
        if tag == _PRIVATE:
            reader.block()
            for _ in range(reader.number(">i")):
                reader.certificate(version)
            found[alias] = None
        elif tag == _CERTIFICATE:
            reader.certificate(version)
            found[alias] = None
        elif tag == _SECRET:
            sealed, size = read_object(view[reader.at :])
            reader.at += size
            found[alias] = _sealed(sealed)
        else:
            raise ValueError(f"a JCEKS entry of kind {tag}")
    return found


def unseal(key: SealedKey, password: str) -> bytes:
    """The key's bytes. Raises ValueError for a wrong password, which looks like damage."""
    if key.algorithm != _SEALED_WITH:
        raise ValueError(f"a key sealed with {key.algorithm}")
    salt, iterations = _salt_and_iterations(memoryview(key.parameters))
    plain = decrypt_triple_des(key.content, password, salt, iterations)
    made, _ = read_object(memoryview(plain))
    if isinstance(made, JavaObject):
        # A SecretKeySpec has `key`; any other key writes itself as a KeyRep, which has `encoded`.
        for name in ("key", "encoded"):
            found = made.fields.get(name)
            if isinstance(found, bytes) and found:
                return found
    raise ValueError("the sealed object is no secret key")


def decrypt_triple_des(data: bytes, password: str, salt: bytes, iterations: int) -> bytes:
    """Sun's own PBEWithMD5AndTripleDES: each half of the salt is hashed with the password, over and over."""
    from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
    from cryptography.hazmat.primitives.ciphers import Cipher, modes
    from cryptography.hazmat.primitives.padding import PKCS7

    halves = bytearray(salt)
    if halves[:4] == halves[4:]:
        # Java means to reverse the first half and has always missed by one index; its keys are made so.
        for i in range(2):
            kept = halves[i]
            halves[i] = halves[3 - i]
            halves[2] = kept
    secret = bytes(ord(letter) & 0x7F for letter in password)
    derived = b""
    for half in (bytes(halves[:4]), bytes(halves[4:])):
        made = half
        for _ in range(iterations):
            made = hashlib.md5(made + secret, usedforsecurity=False).digest()
        derived += made
    decryptor = Cipher(TripleDES(derived[:24]), modes.CBC(derived[24:])).decryptor()
    plain = decryptor.update(data) + decryptor.finalize()
    padding = PKCS7(64).unpadder()
    return padding.update(plain) + padding.finalize()


def _salt_and_iterations(data: memoryview) -> tuple[bytes, int]:
    found = der.sequence(data)
    if len(found) != 2:
        raise ValueError("the sealed key has no salt and count")
    salt, iterations = bytes(der.octets(found[0])), der.integer(found[1], _ITERATIONS_MAX)
    if len(salt) != 8 or not iterations:
        raise ValueError("the sealed key has no salt and count")
    return salt, iterations


def _sealed(found: object) -> SealedKey:
    fields = found.fields if isinstance(found, JavaObject) else {}
    parameters, content, algorithm = (fields.get(name) for name in ("encodedParams", "encryptedContent", "sealAlg"))
    if not (isinstance(parameters, bytes) and isinstance(content, bytes) and isinstance(algorithm, str)):
        raise ValueError("a JCEKS entry is no sealed key")
    return SealedKey(parameters, content, algorithm)


class _Reader:
    """A cursor over the container."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self.at:
            raise ValueError("the key store ends too early")
        found = bytes(self._data[self.at : self.at + size])
        self.at += size
        return found

    def number(self, form: str) -> int:
        found: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return found

    def text(self) -> str:
        return self.take(self.number(">H")).decode("utf-8", "replace")

    def block(self) -> bytes:
        return self.take(self.number(">i"))

    def certificate(self, version: int) -> None:
        if version == 2:
            self.text()
        self.block()
