"""JSON from files and from other machines: what is no JSON is a ValueError, also when it only nests too deeply.

The standard library raises RecursionError for that, which nobody who reads a damaged file expects. A text that UTF-8
cannot carry is refused with `is_text`: it could be parsed, and then neither be printed nor be sent.
"""

from __future__ import annotations

import json
from typing import Any


def parse(text: str | bytes | bytearray) -> Any:
    """The value that a JSON text stands for. Raises ValueError when it stands for none."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON nests too deeply") from None


def is_text(value: str) -> bool:
    """Whether a string has no half of a character: `"\\ud800"` is JSON and no text."""
    return not any("\ud800" <= character <= "\udfff" for character in value)
