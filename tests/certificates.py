"""A certificate for this machine, made for a test."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificate(NamedTuple):
    """A certificate that signs itself, and its key."""

    file: Path
    key_file: Path


def make_certificate(place: Path) -> Certificate:
    """A certificate for `localhost` and 127.0.0.1."""
    made = Certificate(place / "certificate.pem", place / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-keyout", str(made.key_file), "-out", str(made.file), "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return made
