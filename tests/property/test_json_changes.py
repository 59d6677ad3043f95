"""Laws of the JSON rendering: nothing of a change is lost, whatever the table looks like."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings

from bench.object_json import to_json
from penstock.errors import InvalidValue
from penstock.formats.json_change import from_json
from penstock.model.change import Change
from penstock.model.schema import TableSchema
from tests import sample
from tests.strategies import tables_of_changes


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(tables_of_changes())
def test_changes_come_back_from_json_as_they_were(table: tuple[TableSchema, list[Change]]) -> None:
    schema, changes = table
    for change in changes:
        text = json.dumps(to_json(change, schema))
        assert from_json(json.loads(text), schema) == change


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"op": "insert", "key": {"nobody": 1}, "cells": {}},
        {"op": "other", "key": {}, "cells": {}},
        {"op": "insert", "key": {"id": []}, "cells": {}},
        {"op": "insert", "key": {"id": 1}, "cells": {"note": {"value": 5}}},
        {"op": "insert", "key": {"id": 1}, "cells": {"note": {}}},
        {"op": "insert", "key": {"id": 1}, "cells": {}, "origin": {"planet": "x"}},
    ],
)
def test_other_json_is_refused(record: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match=r"shop\.orders"):
        from_json(record, sample.SCHEMA)
