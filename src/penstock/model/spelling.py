"""Spelling: the nearest known word, for people who mistyped one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`; did you mean X?` for the nearest known word, or nothing."""
    # Case is folded for the comparison only: the answer is shown as it must be written.
    spelled = {name.casefold(): name for name in sorted(known)}
    near = difflib.get_close_matches(word.casefold(), list(spelled), n=1, cutoff=cutoff)
    return f"; did you mean {spelled[near[0]]}?" if near else ""
