"""PKCS #12 (RFC 7292), for the secret keys that Java's keytool puts into it.

Java wraps a secret key as if it were a private one: a secret bag whose value is an encrypted PKCS #8 key, under PBES2
(Java 16 and later) or the older PBEWithSHA1AndDESede. The alias is the bag's friendly name.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.capture.cassandra.segments.keys import der

_DATA = "1.2.840.113549.1.7.1"
_ENCRYPTED_DATA = "1.2.840.113549.1.7.6"
_BAGS = "1.2.840.113549.1.12.10.1."
_SHROUDED_KEY = _BAGS + "2"
_FRIENDLY_NAME = "1.2.840.113549.1.9.20"
_PBES2 = "1.2.840.113549.1.5.13"
_PBKDF2 = "1.2.840.113549.1.5.12"
_SHA1_DESEDE3, _SHA1_DESEDE2 = "1.2.840.113549.1.12.1.3", "1.2.840.113549.1.12.1.4"
_DES_EDE3_CBC = "1.2.840.113549.3.7"
_AES_CBC = {"2.16.840.1.101.3.4.1.2": 16, "2.16.840.1.101.3.4.1.22": 24, "2.16.840.1.101.3.4.1.42": 32}
_HMACS = {f"1.2.840.113549.2.{n}": name for n, name in ((7, "sha1"), (9, "sha256"), (10, "sha384"), (11, "sha512"))}
_DIGESTS = {
    "1.3.14.3.2.26": "sha1",
    "2.16.840.1.101.3.4.2.1": "sha256",
    "2.16.840.1.101.3.4.2.2": "sha384",
    "2.16.840.1.101.3.4.2.3": "sha512",
}
# Java refuses more itself.
_ITERATIONS_MAX = 5_000_000
# What PKCS #12's own derivation is asked for.
_FOR_KEY, _FOR_IV, _FOR_MAC = 1, 2, 3


class ShroudedKey(NamedTuple):
    """A secret key as it stands in the store: how it is encrypted, and the ciphertext."""

    algorithm: der.Element
    content: bytes


def looks_like(data: bytes) -> bool:
    """Whether this begins as a PKCS #12 file of version 3."""
    return data[:1] == b"\x30" and b"\x02\x01\x03\x30" in data[:12]


def mac_fits(data: bytes, password: str) -> bool:
    """Whether the password is the store's; also true of a store that was written without a MAC."""
    _version, safe, *rest = der.sequence(memoryview(data))
    if not rest:
        return True
    mac, salt, *count = der.parts(rest[0], 2)
    algorithm, stored = der.parts(mac, 2)
    iterations = der.integer(count[0], _ITERATIONS_MAX) if count else 1
    name = _DIGESTS.get(der.object_id(der.parts(algorithm, 1)[0]))
    if name is None:
        raise ValueError("the MAC's digest is not known")
    length = hashlib.new(name, usedforsecurity=False).digest_size
    key = derive(name, password, bytes(der.octets(salt)), iterations, _FOR_MAC, length)
    made = hmac.new(key, bytes(_content(safe)), name).digest()
    return hmac.compare_digest(made, bytes(der.octets(stored)))


def read_entries(data: bytes, password: str) -> dict[str, ShroudedKey | None]:
    """The secret keys by alias; None for an entry of another kind that has a name."""
    _version, safe, *_ = der.sequence(memoryview(data))
    found: dict[str, ShroudedKey | None] = {}
    for info in der.sequence(_content(safe)):
        for bag in _bags(info, password):
            kind, value, *attributes = der.parts(bag, 2)
            name = _friendly_name(attributes)
            if name is not None:
                secret = der.object_id(kind) == _BAGS + "5"
                found[name] = _shrouded(der.expect(value, der.CONTEXT_0)) if secret else found.get(name)
    return found


def unshroud(key: ShroudedKey, password: str) -> bytes:
    """The key's bytes. Raises ValueError for a wrong password, which looks like damage."""
    plain = _decrypt(key.algorithm, key.content, password)
    _version, _algorithm, found = der.sequence(memoryview(plain))[:3]
    return bytes(der.octets(found))


def derive(digest: str, password: str, salt: bytes, iterations: int, purpose: int, length: int) -> bytes:
    """PKCS #12's own key derivation (RFC 7292, appendix B.2)."""
    block = hashlib.new(digest, usedforsecurity=False).block_size
    secret = password.encode("utf-16-be") + b"\0\0"
    salts = _filled(salt, block)
    secrets = _filled(secret, block)
    mixed = bytearray(salts + secrets)
    out = b""
    while len(out) < length:
        made = bytes([purpose]) * block + mixed
        for _ in range(iterations):
            made = hashlib.new(digest, made, usedforsecurity=False).digest()
        out += made
        step = int.from_bytes(_filled(made, block)[:block], "big") + 1
        for at in range(0, len(mixed), block):
            total = int.from_bytes(mixed[at : at + block], "big") + step
            mixed[at : at + block] = (total & (1 << 8 * block) - 1).to_bytes(block, "big")
    return out[:length]


def _filled(data: bytes, block: int) -> bytes:
    if not data:
        return b""
    length = -(-len(data) // block) * block
    return (data * (length // len(data) + 1))[:length]


def _content(info: der.Element) -> memoryview:
    """The bytes in a ContentInfo of kind data."""
    kind, value = der.parts(info, 2)[:2]
    if der.object_id(kind) != _DATA:
        raise ValueError("the store is signed or enveloped, which Java does not read either")
    return der.octets(next(der.elements(der.expect(value, der.CONTEXT_0))))


def _bags(info: der.Element, password: str) -> Iterator[der.Element]:
    kind = der.object_id(der.parts(info, 2)[0])
    if kind == _DATA:
        yield from der.sequence(_content(info))
    elif kind == _ENCRYPTED_DATA:
        value = der.expect(der.parts(info, 2)[1], der.CONTEXT_0)
        _version, content, *_ = der.sequence(value)
        _kind, algorithm, *body = der.parts(content, 2)
        if body and body[0].tag == der.CONTEXT_0_PLAIN and _is_known(algorithm):
            plain = _decrypt(algorithm, bytes(body[0].value), password)
            yield from der.sequence(memoryview(plain))


def _friendly_name(attributes: list[der.Element]) -> str | None:
    for given in attributes[:1]:
        for attribute in der.elements(der.expect(given, der.SET)):
            kind, values = der.parts(attribute, 2)[:2]
            if der.object_id(kind) == _FRIENDLY_NAME:
                return bytes(der.only(der.expect(values, der.SET), der.BMP_STRING)).decode("utf-16-be", "replace")
    return None


def _shrouded(value: memoryview) -> ShroudedKey:
    kind, wrapped = der.sequence(value)[:2]
    if der.object_id(kind) != _SHROUDED_KEY:
        raise ValueError("a secret bag of another kind than Java's")
    inner = next(der.elements(der.expect(wrapped, der.CONTEXT_0)))
    algorithm, content = der.sequence(der.octets(inner))[:2]
    return ShroudedKey(algorithm, bytes(der.octets(content)))


def _is_known(algorithm: der.Element) -> bool:
    # Certificates may be under RC2 with 40 bits; no secret key is, so they are passed over.
    return der.object_id(der.parts(algorithm, 1)[0]) in (_PBES2, _SHA1_DESEDE3, _SHA1_DESEDE2)


def _decrypt(algorithm: der.Element, content: bytes, password: str) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, modes
    from cryptography.hazmat.primitives.padding import PKCS7

    kind, parameters = der.parts(algorithm, 2)[:2]
    name = der.object_id(kind)
    if name == _PBES2:
        cipher, iv = _pbes2(parameters, password)
    elif name in (_SHA1_DESEDE3, _SHA1_DESEDE2):
        cipher, iv = _sha1_desede(parameters, password, 24 if name == _SHA1_DESEDE3 else 16)
    else:
        raise ValueError(f"the algorithm {name} is not known")
    decryptor = Cipher(cipher, modes.CBC(iv)).decryptor()
    plain = decryptor.update(content) + decryptor.finalize()
    padding = PKCS7(cipher.block_size).unpadder()
    return padding.update(plain) + padding.finalize()


def _sha1_desede(parameters: der.Element, password: str, length: int) -> tuple[Any, bytes]:
    from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES

    salt_part, count = der.parts(parameters, 2)[:2]
    salt, iterations = bytes(der.octets(salt_part)), der.integer(count, _ITERATIONS_MAX)
    key = derive("sha1", password, salt, iterations, _FOR_KEY, length)
    if length == 16:
        key += key[:8]
    return TripleDES(key), derive("sha1", password, salt, iterations, _FOR_IV, 8)


def _pbes2(parameters: der.Element, password: str) -> tuple[Any, bytes]:
    from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
    from cryptography.hazmat.primitives.ciphers.algorithms import AES

    derivation, scheme = der.parts(parameters, 2)[:2]
    function, given = der.parts(derivation, 2)[:2]
    kind, iv = der.parts(scheme, 2)[:2]
    cipher = der.object_id(kind)
    if der.object_id(function) != _PBKDF2 or (cipher not in _AES_CBC and cipher != _DES_EDE3_CBC):
        raise ValueError("the parts of the PBES2 encryption are not known")
    salt, count, *rest = der.parts(given, 2)
    digest = "sha1"
    for part in rest:
        if part.tag == der.SEQUENCE:
            digest = _HMACS.get(der.object_id(der.parts(part, 1)[0]), "")
    if not digest:
        raise ValueError("the PBES2 digest is not known")
    iterations = der.integer(count, _ITERATIONS_MAX)
    length = _AES_CBC.get(cipher, 24)
    key = hashlib.pbkdf2_hmac(digest, password.encode(), bytes(der.octets(salt)), max(iterations, 1), length)
    return (TripleDES(key) if cipher == _DES_EDE3_CBC else AES(key)), bytes(der.octets(iv))
