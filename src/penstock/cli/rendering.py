"""Rendering: one change as a line of text, or as a JSON object with its position."""

from __future__ import annotations

import json
from typing import Any

from penstock.cli import output
from penstock.formats.json import to_json
from penstock.model.change import Change
from penstock.model.position import Position
from penstock.model.schema import TableSchema

_TEXT_MAX = 200


def record(position: Position, change: Change, schema: TableSchema) -> dict[str, Any]:
    """The change as `penstock log cat --json` prints it."""
    return {"position": str(position), "table": str(schema.table), **to_json(change, schema)}


def line(position: Position, change: Change, schema: TableSchema) -> str:
    """Position, time, operation, key, cells: for eyes, so long values are cut."""
    shown = to_json(change, schema)
    parts = [str(position), output.instant(change.when), change.op.value.ljust(6)]
    raise NotImplementedError(shown, parts, json, _TEXT_MAX)
