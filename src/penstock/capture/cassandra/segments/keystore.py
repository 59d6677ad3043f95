"""KeyStore: the secret keys that Cassandra encrypts its commit log with, out of a Java key store.

JCEKS and PKCS #12 are read; a JKS store is refused, because that format cannot hold a secret key. Passwords are used
and forgotten as far as Python allows; no message ever holds one. Wrong password, missing alias and damage all raise
KeyStoreError with the file and the alias.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from penstock.capture.cassandra.segments.keys import jceks, pkcs12
from penstock.errors import KeyStoreError
from penstock.log.refusal import refused
from penstock.system.extras import install_line

STORE_BYTES_MAX = 16 << 20


class KeyStore:
    """An open store: the keys by alias, each opened when it is asked for."""

    def __init__(self, path: str, keys: dict[str, Callable[[], bytes] | None]) -> None:
        self.path = path
        self._keys = keys
        self._opened: dict[str, bytes] = {}

    @classmethod
    def open(cls, path: str, password: str, *, key_password: str | None = None) -> KeyStore:
        """Read a store and check the password. The keys have the store's password unless told otherwise."""
        try:
            with open(path, "rb") as file:
                data = file.read(STORE_BYTES_MAX + 1)
        except OSError as error:
            raise refused(error, "reading a key store", path) from error
        if len(data) > STORE_BYTES_MAX:
            raise KeyStoreError(f"a key store of more than {STORE_BYTES_MAX} bytes", file=path)
        return cls(path, _read(path, data, password, password if key_password is None else key_password))

    @property
    def aliases(self) -> tuple[str, ...]:
        """The names of all entries, secret keys or not."""
        return tuple(self._keys)

    def key(self, alias: str) -> bytes:
        """The bytes of a secret key. Java's stores know no capitals, so that an alias is found in any case."""
        # Java folds the alias when it stores it; another tool may not have.
        name = alias if alias in self._keys else alias.lower()
        if name not in self._keys:
            raise KeyStoreError("the key store has no such alias", alias=alias, file=self.path)
        found = self._opened.get(name)
        if found is not None:
            return found
        open_key = self._keys[name]
        if open_key is None:
            raise KeyStoreError(
                "the alias is a certificate or a key pair, not a secret key", alias=alias, file=self.path
            )
        try:
            found = self._opened[name] = open_key()
        except ValueError as error:
            message = "the key cannot be opened: its password differs from the store's, or it is damaged"
            raise KeyStoreError(message, alias=alias, file=self.path) from error
        return found


def _read(path: str, data: bytes, password: str, key_password: str) -> dict[str, Callable[[], bytes] | None]:
    if data[:4] == jceks.MAGIC_JKS:
        raise KeyStoreError("a JKS store cannot hold a secret key: make it JCEKS or PKCS12", file=path)
    _check_library()
    try:
        if data[:4] == jceks.MAGIC:
            if not jceks.digest_fits(data, password):
                raise KeyStoreError("the password is wrong, or the key store is damaged", file=path)
            return {alias: _jceks_key(key, key_password) for alias, key in jceks.read_entries(data).items()}
        if pkcs12.looks_like(data):
            if not pkcs12.mac_fits(data, password):
                raise KeyStoreError("the password is wrong, or the key store is damaged", file=path)
            return {alias: _pkcs12_key(key, key_password) for alias, key in pkcs12.read_entries(data, password).items()}
    except (ValueError, StopIteration, struct.error) as error:
        raise KeyStoreError("the key store is damaged, or a form of it that is not known", file=path) from error
    raise KeyStoreError("neither a JCEKS nor a PKCS12 key store", file=path)


def _jceks_key(key: jceks.SealedKey | None, password: str) -> Callable[[], bytes] | None:
    return None if key is None else lambda: jceks.unseal(key, password)


def _pkcs12_key(key: pkcs12.ShroudedKey | None, password: str) -> Callable[[], bytes] | None:
    return None if key is None else lambda: pkcs12.unshroud(key, password)


def _check_library() -> None:
    try:
        import cryptography
    except ImportError as error:
        message = f"opening a key store needs the package cryptography: {install_line(['cassandra'])}"
        raise KeyStoreError(message) from error
    del cryptography
