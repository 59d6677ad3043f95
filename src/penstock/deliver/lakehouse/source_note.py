"""What a lakehouse table has noted of the table that it follows, kept among the target's own properties.

    penstock.table_id   the id of the source's table; a target without it takes that of the first schema that has one
    penstock.columns    JSON: `order` of the newest schema that altered the target, `key` (the target's names of the key
                        columns, in order), `columns` (target's name → source's, where they differ), `former` (target's
                        name → names that the column had before)

Key columns are known by their place, because a source can only rename them; other columns by their names, which differ
only where the target could not tell two apart, or where an older column of another type has the name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.model.schema import TableSchema
from penstock.system import json_text

TABLE_ID = "penstock.table_id"
COLUMNS = "penstock.columns"
Order = tuple[int, int, str]
# Older than any schema.
_NEVER: Order = (-1, -1, "")
_NUMBERED = re.compile(r"(.+)__\d+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SourceNote:
    """The note of one target table. One without a key was never made: the target is older, or someone else's."""

    id: str = ""
    order: Order = _NEVER
    key: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    former: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def source_name(self, target: str) -> str:
        """The source's column that a column of the target is for."""
        return self.columns.get(target, target)

    def is_older(self, schema: TableSchema) -> bool:
        """Whether a schema is older than what the target follows."""
        return schema.order < self.order

    def is_of_another_table(self, schema: TableSchema) -> bool:
        """Whether a schema is that of another table of the same name, made before or after the one that is noted."""
        return bool(self.id and schema.id and self.id != schema.id)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "order": list(self.order),
            "key": list(self.key),
            "columns": dict(self.columns),
            "former": {name: list(names) for name, names in self.former.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SourceNote:
        altered, version, fingerprint = data.get("order", _NEVER)
        return cls(
            id=str(data.get("id", "")),
            order=(int(altered), int(version), str(fingerprint)),
            key=tuple(data.get("key", ())),
            columns=dict(data.get("columns", {})),
            former={name: tuple(names) for name, names in data.get("former", {}).items()},
        )

    def to_properties(self) -> dict[str, str]:
        """The properties that say it."""
        rest = self.to_json()
        return {TABLE_ID: rest.pop("id"), COLUMNS: json.dumps(rest, sort_keys=True)}

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], names: Sequence[str]) -> SourceNote:
        """What a target's properties say. Someone else may have altered the target: columns that are gone do not count.

        A target that was made before there were notes has its numbered columns by their names alone.
        """
        there = set(names)
        text = properties.get(COLUMNS)
        if not text:
            found = {name: _NUMBERED.fullmatch(name) for name in names}
            older = {name: part[1] for name, part in found.items() if part is not None and part[1] in there}
            return cls(id=properties.get(TABLE_ID, ""), columns=older)
        noted = cls.from_json({**json_text.parse(text), "id": properties.get(TABLE_ID, "")})
        return cls(
            id=noted.id,
            order=noted.order,
            key=noted.key if set(noted.key) <= there else (),
            columns={name: source for name, source in noted.columns.items() if name in there},
            former={name: former for name, former in noted.former.items() if name in there},
        )

    def current_names(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """Columns that settings name, as the target has them: by the source's name, or by one that they had before."""
        today = {source: target for target, source in self.columns.items()}
        before = {old: target for target, names in self.former.items() for old in names}
        return tuple(today.get(name, before.get(name, name)) for name in wanted)
