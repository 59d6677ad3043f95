"""A table that the transforms have changed on its way is compared, and repaired, as they leave it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.compare.comparison import Kind, compare
from penstock.compare.delta_rows import DeltaRows
from penstock.compare.lake_rows import LakeShape
from penstock.compare.repair import repair
from penstock.compare.transformed_rows import TransformedRows
from penstock.deliver.delta.sink import DeltaSink
from penstock.errors import InvalidInput
from penstock.filters.functions import Functions
from penstock.settings import TransformSettings
from penstock.settings.sinks import DeltaSettings
from penstock.transforms.transforms import Transforms
from tests.given_rows import GivenRows
from tests.lake_records import SCHEMA, deliver, query, records

ROWS = {(number, "a"): {"note": f"secret {number}", "amount": number} for number in range(6)}
CHOSEN: dict[str, Any] = {
    "filters": {"shop.orders": "amount >= 2"},
    "masks": {"shop.orders.note": "hash"},
    "mask_salt": "pepper",
    "renames": {"shop.orders.line": "place"},
    "exclude_columns": ["shop.orders.amount"],
    "routes": {"shop.orders": "public.bought"},
}


def source(**transform: Any) -> TransformedRows:
    rows: list[dict[str, Any] | None] = [{"id": key[0], "line": key[1], **row} for key, row in ROWS.items()]
    transforms = Transforms(TransformSettings.model_validate(transform), Functions.load({}))
    return TransformedRows(GivenRows(SCHEMA, LakeShape(), [*rows, None]), transforms)


def test_a_table_that_was_filtered_masked_renamed_and_routed_is_compared_and_repaired(tmp_path: Path) -> None:
    sink = DeltaSink(DeltaSettings(directory=tmp_path))
    transforms = Transforms(TransformSettings.model_validate(CHOSEN), Functions.load({}))
    sink.prepare([transforms.target(SCHEMA)])
    deliver(sink, 0, {0: list(transforms.apply([records(SCHEMA, ROWS.items())]))})
    directory = tmp_path / "public/bought"
    right = query(directory, "SELECT * FROM t ORDER BY id")
    assert [(row["id"], row["place"], set(row)) for row in right] == [
        (number, "a", {"id", "place", "note"}) for number in range(2, 6)
    ]
    ours = source(**CHOSEN)
    ours.check_repair()
    target = DeltaRows(directory, ours.schema)
    assert compare(ours, target).same
    wrong = [((3, "a"), None), ((4, "a"), {"note": "shown", "amount": 4})]
    unmasked = Transforms(TransformSettings.model_validate({**CHOSEN, "masks": {}}), Functions.load({}))
    deliver(sink, 1, {0: list(unmasked.apply([records(SCHEMA, wrong)]))})
    report = compare(ours, target)
    assert report.counts == {Kind.MISSING: 1, Kind.EXTRA: 0, Kind.DIFFERENT: 1}
    assert repair(ours, target, report, pipeline="p").left.same
    assert query(directory, "SELECT * FROM t ORDER BY id") == right


def unchanged(rows: Any) -> Any:
    return rows


@pytest.mark.parametrize(
    ("transform", "setting"),
    [
        ({"skipped_operations": ["delete"]}, r"transform\.skipped_operations.*\(delete\)"),
        ({"functions": {"shop.*": f"{__name__}:unchanged"}}, r"transform\.functions\.shop\.\* makes other rows"),
    ],
)
def test_a_repair_that_could_be_wrong_is_refused_with_the_transform_that_prevents_it(
    transform: dict[str, Any], setting: str
) -> None:
    with pytest.raises(InvalidInput, match=setting):
        source(**transform).check_repair()
    source(skipped_operations=["none"], functions={"other.*": f"{__name__}:unchanged"}).check_repair()
