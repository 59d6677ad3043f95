"""Rendering: one change as a line of text, which is for eyes.

`name=value` is a cell that was set, `-name` one that was deleted, `name+=` and `name-=` what was added to and removed
from a collection. Long values are cut there; the JSON is exact.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from penstock.cli import output

_VALUE_MAX = 60
_OP_WIDTH = 6


def line(change: dict[str, Any]) -> str:
    """Of a change's JSON: position, time, operation, key, and what happened to the cells."""
    times = [change[name] for name in ("commit_time", "time", "capture_time") if name in change]
    head = [change["position"], output.instant(times[0] if times else None), change["op"].ljust(_OP_WIDTH)]
    key = " ".join(f"{name}={_value(value)}" for name, value in change["key"].items())
    cells = [part for name, cell in change["cells"].items() for part in _cell(name, cell)]
    if "range" in change:
        cells.append(_range(change["range"]))
    text = "  ".join([*head, *filter(None, [key, " ".join(cells)])])
    return output.plain(text.rstrip())


def _cell(name: str, cell: dict[str, Any]) -> Iterator[str]:
    if "value" in cell:
        yield f"{name}={_value(cell['value'])}{_ttl(cell)}"
    elif cell.get("deleted"):
        yield f"-{name}"
    else:
        elements = [_pair(element) for element in cell["set"]]
        if "replaced" in cell:
            yield f"{name}={_items(elements)}" if elements else f"-{name}"
        elif elements:
            yield f"{name}+={_items(elements)}"
        if cell["removed"]:
            yield f"{name}-={_items([_value(removed['path']) for removed in cell['removed']])}"


def _pair(element: dict[str, Any]) -> str:
    path = _value(element["path"])
    return f"{path}:{_value(element['value'])}" if "value" in element else path


def _items(parts: list[str]) -> str:
    return _cut("{" + ",".join(parts) + "}")


def _range(ends: dict[str, Any]) -> str:
    start, end = ends.get("start"), ends.get("end")
    left = "(" if start is None or not start["inclusive"] else "["
    right = ")" if end is None or not end["inclusive"] else "]"
    return f"{left}{_bound(start)} … {_bound(end)}{right}"


def _bound(bound: dict[str, Any] | None) -> str:
    return "" if bound is None else " ".join(f"{name}={_value(value)}" for name, value in bound["values"].items())


def _ttl(cell: dict[str, Any]) -> str:
    return f"(ttl {cell['ttl_s']}s)" if "ttl_s" in cell else ""


def _value(value: Any) -> str:
    return _cut(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _cut(text: str) -> str:
    return text if len(text) <= _VALUE_MAX else f"{text[: _VALUE_MAX - 1]}…"
