"""Addresses: those that are no paths, and those over which no secret may go.

`s3://bucket/lake` given as a directory must not become a directory called `s3:`. Nothing here reads or writes object
stores. Whoever names one is told so before anything is made, instead of finding an empty bucket later. A login or
a token goes over TLS, or stays on the machine.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

# A path loses one of its slashes when it is brought into its shortest form.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/", re.ASCII)


def store_of(path: str) -> str | None:
    """The kind of store that an address names, as `s3`; None for a path."""
    found = _ADDRESS.match(path)
    return None if found is None else found[1].lower()


def refusal(path: str) -> str | None:
    """Why this cannot be a directory or a file here; None when it can."""
    store = store_of(path)
    if store is None:
        return None
    if store == "file":
        return "give a path without file://"
    return f"{store}:// is an address of a store, which is not supported: give a directory that is local or mounted"


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def keeps_secrets(url: str) -> bool:
    """Whether what is sent to this address is hidden from the network: by TLS, or because it stays here."""
    parts = urlsplit(url)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


def has_login(url: str) -> bool:
    """Whether a user or a password stands in the address, where every message about it would show them."""
    return "@" in urlsplit(url).netloc
