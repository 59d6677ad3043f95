"""Addresses of sixteen bytes as text."""

from __future__ import annotations

import ipaddress

import pytest

from penstock.envelopes._tree import _inet6


@pytest.mark.parametrize(
    "address",
    [
        "2001:db8::1",
        "2001:db8:0:1:1:1:1:1",
        "2001:0:0:1::",
        "fe80::1:0:0:1",
        "ff02::",
        "::",
        "::1",
        "::1.2.3.4",
        "::ffff:1.2.3.4",
        "::ffff:0:1.2.3.4",
        "64:ff9b::1.2.3.4",
        "1:2:3:4:5:6:7:8",
    ],
)
def test_an_address_reads_as_python_writes_it(address: str) -> None:
    found = ipaddress.ip_address(address)
    assert _inet6(found.packed) == str(found).encode()
