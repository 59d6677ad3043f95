"""Statements from their text to changes in files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.control.execute import execute, log_specs, open_table_logs
from penstock.errors import InvalidStatement
from penstock.filters.functions import Functions
from penstock.formats import avro
from penstock.log.catalog import Catalog
from penstock.log.reader import LogReader
from penstock.log.table_logs import DEFAULT, Storage
from penstock.model.change import Change, Deletion, Op, Set
from penstock.model.schema import TableId

CREATE = (
    "CREATE TABLE ks.mytable (id int PRIMARY KEY, mycol1 int, mycol2 int, note text) WITH CDC LOG AND comment = 'x'"
)
SEED = "CREATE CDC_LOG mylog ON mytable WHERE MyUdf(mycol1, mycol2) = 5 with DCs={'dc1','dc3'}"
FUNCTIONS = Functions({"MyUdf": lambda a, b: a // b})
TABLE = TableId("ks", "mytable")


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with Catalog.open(str(tmp_path)) as opened:
        yield opened


def refusal(catalog: Catalog, text: str, keyspace: str | None = "ks") -> str:
    with pytest.raises(InvalidStatement) as caught:
        execute(text, catalog, FUNCTIONS, keyspace=keyspace)
    return str(caught.value)


def test_statements_change_the_catalog_once(catalog: Catalog) -> None:
    made = execute(CREATE, catalog, FUNCTIONS)
    assert (made.changed, made.message, made.notes) == (
        True,
        "table ks.mytable created with its change log",
        ("option comment has no effect here",),
    )
    assert execute(SEED, catalog, FUNCTIONS, keyspace="ks").message == "log mylog on ks.mytable created"
    again = execute(SEED + " IF NOT EXISTS", catalog, FUNCTIONS, keyspace="ks")
    assert (again.changed, again.message) == (False, "log mylog on ks.mytable exists already and was left as it is")
    specs = log_specs(catalog, TABLE)
    assert [(spec.name, str(spec.predicate), sorted(spec.data_centres)) for spec in specs] == [
        (DEFAULT, "None", []),
        ("mylog", "myudf(mycol1, mycol2) = 5", ["dc1", "dc3"]),
    ]
    dropped = execute("DROP CDC_LOG mylog ON ks.mytable", catalog, FUNCTIONS)
    assert (dropped.message, dropped.notes) == (
        "log mylog on ks.mytable dropped",
        ("its files stay until they are deleted",),
    )
    gone = execute("DROP CDC_LOG IF EXISTS mylog ON ks.mytable", catalog, FUNCTIONS)
    assert (gone.changed, gone.message) == (False, "there is no log mylog on ks.mytable")
    assert len(log_specs(catalog, TABLE)) == 1


def test_what_exists_or_is_missing_is_named(catalog: Catalog) -> None:
    execute(CREATE, catalog, FUNCTIONS)
    execute(SEED, catalog, FUNCTIONS, keyspace="ks")
    assert refusal(catalog, CREATE) == "table ks.mytable exists already"
    assert refusal(catalog, SEED) == "log mylog on ks.mytable exists already"
    assert (
        refusal(catalog, "CREATE CDC_LOG m ON ks.mytabel") == "there is no table ks.mytabel; did you mean ks.mytable?"
    )
    assert refusal(catalog, "DROP CDC_LOG mylgo ON mytable") == (
        "there is no log mylgo on ks.mytable; did you mean mylog?"
    )
    assert refusal(catalog, SEED, keyspace=None) == (
        "table mytable has no keyspace: write keyspace.mytable, or choose a keyspace first"
    )


def test_unknown_names_in_the_predicate_are_shown_in_their_place(catalog: Catalog) -> None:
    execute(CREATE, catalog, FUNCTIONS)
    assert refusal(catalog, "CREATE CDC_LOG m ON ks.mytable\n  WHERE MyUfd(mycol1, mycol2) = 5") == (
        "there is no function myufd; did you mean myudf?\n"
        "    WHERE MyUfd(mycol1, mycol2) = 5\n"
        "          ^ (line 2, column 9)"
    )
    assert refusal(catalog, "CREATE CDC_LOG m ON ks.mytable WHERE mycol3 = 5") == (
        "table ks.mytable has no column mycol3; did you mean mycol2?\n"
        "  CREATE CDC_LOG m ON ks.mytable WHERE mycol3 = 5\n"
        "                                       ^ (line 1, column 38)"
    )
    assert refusal(catalog, "CREATE CDC_LOG m ON ks.mytable WHERE note = 5") == (
        "column note (text): a 'string' is needed\n"
        "  CREATE CDC_LOG m ON ks.mytable WHERE note = 5\n"
        "                                              ^ (line 1, column 45)"
    )
    assert catalog.logs() == []


def test_proposed_statement_works_from_text_to_files(tmp_path: Path, catalog: Catalog) -> None:
    execute(CREATE, catalog, FUNCTIONS)
    execute(SEED, catalog, FUNCTIONS, keyspace="ks")
    schema = catalog.tables()[0].schema

    def row(number: int, one: int, two: int) -> Change:
        return Change(Op.INSERT, {"id": number}, {"mycol1": Set(one), "mycol2": Set(two), "note": Set("x")})

    delete = Change(Op.DELETE, {"id": 9}, deletion=Deletion(1))
    batch = avro.encode(schema, [row(1, 10, 2), row(2, 10, 3), row(3, 1, 0), row(4, 15, 3), delete])
    ids: dict[str, list[int]] = {}
    for data_centre in ("dc1", "dc2"):
        root = tmp_path / data_centre
        storage = Storage(str(root), node="n1", data_centre=data_centre)
        with open_table_logs(catalog, TABLE, storage, FUNCTIONS) as logs:
            positions = logs.append(batch)
            for name, position in positions.items():
                assert logs.log(name).end == position
        for directory in sorted(root.iterdir()):
            with LogReader(str(directory)) as reader:
                found = [change.key["id"] for part in reader.read() for change in avro.decode(part)]
            ids[f"{data_centre}/{directory.name}"] = found
    assert ids == {
        "dc1/ks.mytable": [1, 2, 3, 4, 9],
        "dc1/ks.mytable@mylog": [1, 4, 9],
        "dc1/ks.mytable@mylog!parked": [3],
        "dc2/ks.mytable": [1, 2, 3, 4, 9],
    }


def test_function_that_left_the_settings_is_missed_when_the_logs_open(tmp_path: Path, catalog: Catalog) -> None:
    execute(CREATE, catalog, FUNCTIONS)
    execute(SEED, catalog, FUNCTIONS, keyspace="ks")
    with pytest.raises(InvalidStatement) as caught:
        open_table_logs(catalog, TABLE, Storage(str(tmp_path / "root"), data_centre="dc1"), Functions())
    assert str(caught.value) == (
        "log mylog on ks.mytable: there is no function myudf; functions are registered in the settings\n"
        "  myudf(mycol1, mycol2) = 5\n"
        "  ^ (line 1, column 1)"
    )
    assert not (tmp_path / "root").exists()
    # A node outside the log's data centres does not need the function.
    open_table_logs(catalog, TABLE, Storage(str(tmp_path / "root"), data_centre="dc2"), Functions()).close()


def test_names_that_are_no_paths_stay_inside_the_root(tmp_path: Path, catalog: Catalog) -> None:
    execute('CREATE TABLE "../up"."a/b" (id int PRIMARY KEY) WITH CDC LOG', catalog, FUNCTIONS)
    execute('CREATE CDC_LOG "../../x" ON "../up"."a/b"', catalog, FUNCTIONS)
    root = tmp_path / "root"
    table = TableId("../up", "a/b")
    with open_table_logs(catalog, table, Storage(str(root)), FUNCTIONS) as logs:
        schema = catalog.tables()[0].schema
        assert set(logs.append(avro.encode(schema, [Change(Op.INSERT, {"id": 1})]))) == {DEFAULT, "../../x"}
    assert len(list(root.iterdir())) == 2
    assert {path.name for path in tmp_path.iterdir()} >= {"root"}
