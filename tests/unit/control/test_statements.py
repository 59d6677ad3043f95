"""The statements: what parses, to what, and what people are told when it does not."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pytest

from penstock.control.statements import DEPTH_MAX, STATEMENT_CHARS_MAX, parse, parse_predicate
from penstock.errors import InvalidStatement
from penstock.model import types as t
from penstock.model.predicate import And, Call, ColumnRef, Compare, In, IsNull, Literal, Not, Operator, Or, Truth
from penstock.model.schema import Column, Role
from penstock.model.statement import CreateLog, CreateTable, DropLog, TableName
from penstock.model.types import Type, Unit

A = ColumnRef("a")


def refusal(text: str) -> str:
    with pytest.raises(InvalidStatement) as caught:
        parse(text)
    return str(caught.value)


def create_table(text: str) -> CreateTable:
    statement = parse(text)
    assert isinstance(statement, CreateTable)
    return statement


def column_type(text: str) -> Type:
    return create_table(f"CREATE TABLE ks.t (k int PRIMARY KEY, c {text})").columns[1].type


def test_proposed_create_log_parses_verbatim() -> None:
    text = "CREATE CDC_LOG mylog ON mytable WHERE MyUdf(mycol1, mycol2) = 5 with DCs={'dc1','dc3'}"
    predicate = Compare(Call("myudf", (ColumnRef("mycol1"), ColumnRef("mycol2"))), Operator.EQUAL, Literal(5))
    assert parse(text) == CreateLog("mylog", TableName(None, "mytable"), predicate, frozenset({"dc1", "dc3"}))


def test_proposed_create_table_parses() -> None:
    statement = create_table("CREATE TABLE ks.t (a int PRIMARY KEY, b text) WITH CDC LOG")
    assert statement.cdc
    assert statement.columns == (
        Column("a", t.INT32, Role.PARTITION, source_type="int"),
        Column("b", t.TEXT, Role.REGULAR, source_type="text"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "CREATE CDC_LOG IF NOT EXISTS m ON ks.t",
        "CREATE CDC_LOG m ON ks.t IF NOT EXISTS",
        "create cdc_log M on KS.T if not exists;",
        "-- first\nCREATE /* second\n */ CDC_LOG m ON ks.t IF NOT EXISTS // third",
        'CREATE CDC_LOG "m" ON "ks"."t" IF NOT EXISTS ;;',
    ],
)
def test_create_log_may_be_conditional_in_either_place_and_any_case(text: str) -> None:
    assert parse(text) == CreateLog("m", TableName("ks", "t"), if_not_exists=True)


def test_clauses_of_create_log_stand_together() -> None:
    text = "CREATE CDC_LOG m ON ks.t WHERE a > 1 AND b = 'x' WITH DCs = {'dc1'} IF NOT EXISTS"
    condition = And((Compare(A, Operator.MORE, Literal(1)), Compare(ColumnRef("b"), Operator.EQUAL, Literal("x"))))
    assert parse(text) == CreateLog("m", TableName("ks", "t"), condition, frozenset({"dc1"}), True)


def test_drop_log() -> None:
    assert parse("DROP CDC_LOG m ON ks.t") == DropLog("m", TableName("ks", "t"))
    assert parse('drop cdc_log if exists "My Log" on "My Table";') == DropLog(
        "My Log", TableName(None, "My Table"), True
    )


def test_quoted_names_keep_case_blanks_and_quotes() -> None:
    statement = parse('CREATE CDC_LOG m ON "My Ks"."a ""b"" c"')
    assert isinstance(statement, CreateLog)
    assert statement.table == TableName("My Ks", 'a "b" c')


def test_unreserved_keywords_are_names() -> None:
    statement = create_table(
        "CREATE TABLE log.cdc (key text, static int, exists int static, desc int, PRIMARY KEY (key, desc))"
        " WITH CLUSTERING ORDER BY (desc DESC)"
    )
    assert [column.name for column in statement.columns] == ["key", "desc", "static", "exists"]
    assert parse_predicate("key = 'a' AND log(order) = by") == And(
        (
            Compare(ColumnRef("key"), Operator.EQUAL, Literal("a")),
            Compare(Call("log", (ColumnRef("order"),)), Operator.EQUAL, ColumnRef("by")),
        )
    )


def test_key_columns_come_first_and_in_key_order() -> None:
    statement = create_table(
        "CREATE TABLE ks.t (v int, c1 int, p2 int, s text STATIC, c2 int, p1 int, PRIMARY KEY ((p1, p2), c2, c1))"
        " WITH CLUSTERING ORDER BY (c2 DESC, c1 ASC)"
    )
    assert [(c.name, c.role, c.descending) for c in statement.columns] == [
        ("p1", Role.PARTITION, False),
        ("p2", Role.PARTITION, False),
        ("c2", Role.CLUSTERING, True),
        ("c1", Role.CLUSTERING, False),
        ("v", Role.REGULAR, False),
        ("s", Role.STATIC, False),
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("varchar", t.TEXT),
        ("TinyInt", t.INT8),
        ("timestamp", t.timestamp(Unit.MS)),
        ("time", t.time(Unit.NS)),
        ("duration", t.duration(Unit.NS)),
        ("counter", t.COUNTER),
        ("list<int>", t.list_of(t.INT32, multi_cell=True)),
        ("frozen<list<int>>", t.list_of(t.INT32)),
        ("set<frozen<set<uuid>>>", t.set_of(t.set_of(t.UUID), multi_cell=True)),
        ("map<text, frozen<tuple<int, inet>>>", t.map_of(t.TEXT, t.tuple_of(t.INT32, t.INET), multi_cell=True)),
        ("frozen<map<text, list<int>>>", t.map_of(t.TEXT, t.list_of(t.INT32))),
        ("tuple<int, list<date>>", t.tuple_of(t.INT32, t.list_of(t.DATE))),
        ("vector<float, 1536>", t.vector(t.FLOAT32, 1536)),
    ],
)
def test_cql_types(text: str, wanted: Type) -> None:
    assert column_type(text) == wanted


@pytest.mark.parametrize("option", ["cdc = true", "CDC LOG", "cdc = {'enabled': true, 'preimage': 'full'}"])
def test_ways_to_ask_for_the_default_log(option: str) -> None:
    assert create_table(f"CREATE TABLE ks.t (a int PRIMARY KEY) WITH {option}").cdc


@pytest.mark.parametrize("option", ["cdc = false", "cdc = {'enabled': 'false'}", "comment = 'cdc'"])
def test_tables_without_the_default_log(option: str) -> None:
    assert not create_table(f"CREATE TABLE ks.t (a int PRIMARY KEY) WITH {option}").cdc


def test_options_without_effect_are_noted() -> None:
    statement = create_table(
        "CREATE TABLE ks.t (a int PRIMARY KEY) WITH gc_grace_seconds = 10 AND CDC LOG"
        " AND compaction = {'class': 'LeveledCompactionStrategy', 'x': {}} AND COMPACT STORAGE"
    )
    assert statement.notes == (
        "option gc_grace_seconds has no effect here",
        "option compaction has no effect here",
        "COMPACT STORAGE has no effect here",
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("- 5", -5),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("0.10", Decimal("0.10")),
        ("-1.5e-3", Decimal("-0.0015")),
        ("-0.12345678901234567890123456789012345", Decimal("-0.12345678901234567890123456789012345")),
        ("1E400", Decimal("1E400")),
        ("'it''s'", "it's"),
        ("''", ""),
        ("TRUE", True),
        ("null", None),
        ("0xCAFE", b"\xca\xfe"),
        ("0x", b""),
        ("f47ac10b-58cc-4372-a567-0e02b2c3d479", UUID("f47ac10b-58cc-4372-a567-0e02b2c3d479")),
        ("550e8400-e29b-41d4-a716-446655440000", UUID("550e8400-e29b-41d4-a716-446655440000")),
    ],
)
def test_literals_are_exact(text: str, value: object) -> None:
    predicate = parse_predicate(f"a = {text}")
    assert isinstance(predicate, Compare)
    assert isinstance(predicate.right, Literal)
    assert repr(predicate.right.value) == repr(value)


def test_precedence_is_not_then_and_then_or() -> None:
    b, c, d = (Truth(ColumnRef(name)) for name in "bcd")
    assert parse_predicate("NOT a OR b AND c OR d") == Or((Not(Truth(A)), And((b, c)), d))
    assert parse_predicate("(a OR b) AND NOT (c OR d)") == And((Or((Truth(A), b)), Not(Or((c, d)))))


def test_every_kind_of_condition() -> None:
    assert parse_predicate("a <> 1") == Compare(A, Operator.NOT_EQUAL, Literal(1))
    assert parse_predicate("1 <= a") == Compare(Literal(1), Operator.LESS_OR_EQUAL, A)
    assert parse_predicate("(a) >= -1") == Compare(A, Operator.MORE_OR_EQUAL, Literal(-1))
    assert parse_predicate("a IN (1, 2)") == In(A, (Literal(1), Literal(2)))
    assert parse_predicate("a NOT IN (1)") == parse_predicate("NOT a IN (1)") == Not(In(A, (Literal(1),)))
    assert parse_predicate("f() IS NULL") == IsNull(Call("f"))
    assert parse_predicate("a IS NOT NULL") == parse_predicate("NOT a IS NULL") == Not(IsNull(A))
    assert parse_predicate("f(g(a, null), 'x')") == Truth(Call("f", (Call("g", (A, Literal(None))), Literal("x"))))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "CREATE CDCLOG mylog ON ks.t",
            """
expected CDC_LOG or TABLE, found CDCLOG; did you mean CDC_LOG?
  CREATE CDCLOG mylog ON ks.t
         ^ (line 1, column 8)""",
        ),
        (
            "CREATE CDC LOG mylog ON ks.t",
            """
expected CDC_LOG or TABLE, found CDC; did you mean CDC_LOG?
  CREATE CDC LOG mylog ON ks.t
         ^ (line 1, column 8)""",
        ),
        (
            "CREATE CDC_LOG mylog ON ks.t\n\tWHER a = 5\n  WITH DCs = {'dc1'}",
            """
expected IF, WHERE, WITH, `;` or the end of the statement, found WHER; did you mean WHERE?
   WHER a = 5
   ^ (line 2, column 2)""",
        ),
        (
            "CREATE CDC_LOG m ON ks.t WHERE a = ",
            """
expected a column, a function or a literal, found the end of the statement
  CREATE CDC_LOG m ON ks.t WHERE a =
                                    ^ (line 1, column 35)""",
        ),
        (
            "CREATE CDC_LOG m ON ks.t WHERE a = 5 WITH DC = {'dc1'}",
            """
expected DCs, found DC; did you mean DCs?
  CREATE CDC_LOG m ON ks.t WHERE a = 5 WITH DC = {'dc1'}
                                            ^ (line 1, column 43)""",
        ),
        (
            "CREATE CDC_LOG m ON ks.t WITH DCs = ('dc1')",
            """
expected `{`, found `(`
  CREATE CDC_LOG m ON ks.t WITH DCs = ('dc1')
                                      ^ (line 1, column 37)""",
        ),
        (
            "CREATE CDC_LOG where ON ks.t",
            """
expected a name or IF, found where; a keyword can be a name only in double quotes
  CREATE CDC_LOG where ON ks.t
                 ^ (line 1, column 16)""",
        ),
        (
            "CREATE CDC_LOG m ON ks.t WHERE a = 'x",
            """
the string that begins here has no closing '
  CREATE CDC_LOG m ON ks.t WHERE a = 'x
                                     ^ (line 1, column 36)""",
        ),
        (
            "CREATE TABLE ks.t (a int PRIMARY KEY) WITH CDC_LOG",
            """
expected `=`, found the end of the statement; did you mean CDC LOG?
  CREATE TABLE ks.t (a int PRIMARY KEY) WITH CDC_LOG
                                                    ^ (line 1, column 51)""",
        ),
        (
            "CREATE TABLE ks.t (a int PRIMRY KEY)",
            """
expected PRIMARY, STATIC, `.`, `<`, `,` or `)`, found PRIMRY; did you mean PRIMARY?
  CREATE TABLE ks.t (a int PRIMRY KEY)
                           ^ (line 1, column 26)""",
        ),
        (
            "CREATE TABLE ks.t (a integer PRIMARY KEY)",
            """
integer is no CQL type, and user types cannot be named in a statement; did you mean int?
  CREATE TABLE ks.t (a integer PRIMARY KEY)
                       ^ (line 1, column 22)""",
        ),
        (
            "CREATE TABLE ks.t (a int PRIMARY KEY, b address)",
            """
address is no CQL type, and user types cannot be named in a statement
  CREATE TABLE ks.t (a int PRIMARY KEY, b address)
                                          ^ (line 1, column 41)""",
        ),
        (
            "CREATE TABLE ks.t (名前 int PRIMARY KEY)",
            """
the character '名' has no meaning here
  CREATE TABLE ks.t (名前 int PRIMARY KEY)
                     ^ (line 1, column 20)""",
        ),
        (
            'CREATE CDC_LOG "名前" ONN ks.t',
            """
expected ON, found ONN; did you mean ON?
  CREATE CDC_LOG "名前" ONN ks.t
                        ^ (line 1, column 21)""",
        ),
    ],
)
def test_error_shows_the_place_and_what_was_expected(text: str, wanted: str) -> None:
    assert refusal(text) == wanted.removeprefix("\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the statement is empty"),
        ("-- nothing", "expected CREATE or DROP, found the end of the statement"),
        ("SELECT 1", "expected CREATE or DROP, found SELECT"),
        ("DROP TABLE ks.t", "expected CDC_LOG, found TABLE"),
        ("/* x", "the comment that begins here has no closing */"),
        ('CREATE CDC_LOG "x', 'the name that begins here has no closing "'),
        ('CREATE CDC_LOG "" ON ks.t', "a name cannot be empty"),
        ("CREATE CDC_LOG m ON ks.t WITH DCs = {''}", "a data centre's name cannot be empty"),
        ("CREATE CDC_LOG m ON ks.t WHERE 5", "a literal alone is no condition"),
        ("CREATE CDC_LOG m ON ks.t WHERE (a = 1) = 2", "each side must be a column, a function or a literal"),
        ("CREATE CDC_LOG m ON ks.t WHERE f(a = 1)", "expected"),
        ("CREATE CDC_LOG m ON ks.t WHERE a = 0x123", "a blob is 0x and an even number of hexadecimal digits"),
        ("CREATE CDC_LOG m ON ks.t WHERE a = 1e99999999", "numbers have at most 1000 digits"),
        ("CREATE CDC_LOG m ON ks.t WHERE a = " + "9" * 1001, "numbers have at most 1000 digits"),
        ("CREATE CDC_LOG m ON ks.t WHERE a = 1\0", "a statement cannot hold the character NUL"),
        ("CREATE TABLE ks.t (a int)", "the table has no PRIMARY KEY"),
        ("CREATE TABLE ks.t (a int PRIMARY KEY, b int, PRIMARY KEY (b))", "the table has two primary keys"),
        ("CREATE TABLE ks.t (a int, A int, PRIMARY KEY (a))", "column a is defined twice"),
        ("CREATE TABLE ks.t (abc int, PRIMARY KEY (abd))", "which is not defined; did you mean abc?"),
        ("CREATE TABLE ks.t (a int, PRIMARY KEY (a, a))", "the primary key names column a twice"),
        ("CREATE TABLE ks.t (a int, b int STATIC, PRIMARY KEY (a, b))", "static column b cannot be part"),
        (
            "CREATE TABLE ks.t (a int PRIMARY KEY, b int STATIC)",
            "a static column needs a table with clustering columns",
        ),
        ("CREATE TABLE ks.t (a list<int> PRIMARY KEY)", "key column a must be frozen: frozen<list<int>>"),
        ("CREATE TABLE ks.t (a duration PRIMARY KEY)", "key column a cannot be a duration"),
        ("CREATE TABLE ks.t (a int PRIMARY KEY, b list<list<int>>)", "a list inside a list must be frozen"),
        ("CREATE TABLE ks.t (a int PRIMARY KEY, b frozen<int>)", "only collections and tuples can be frozen"),
        ("CREATE TABLE ks.t (a int PRIMARY KEY, b map<int>)", "type map takes 2 types in angle brackets, not 1"),
        ("CREATE TABLE ks.t (a int PRIMARY KEY, b list)", "type list takes 1 type in angle brackets, not 0"),
        ("CREATE TABLE ks.t (a int PRIMARY KEY, b int<int>)", "type int takes nothing in angle brackets"),
        ("CREATE TABLE ks.t (a int PRIMARY KEY, b vector<float>)", "a vector needs a type and a length"),
        ("CREATE TABLE ks.t (a int PRIMARY KEY, b list<3>)", "type list takes types only, not a number"),
        ("CREATE TABLE ks.t (a int PRIMARY KEY, b set<counter>)", "a counter cannot stand inside another type"),
        ("CREATE TABLE ks.t (a int PRIMARY KEY, b ks.address)", "ks.address is no CQL type"),
        ("CREATE TABLE ks.t (a int PRIMARY KEY, b 'x.Y')", "types given as a Java class are not known here"),
        ("CREATE TABLE ks.t (a int PRIMARY KEY) WITH cdc = ture", "cdc takes true or false; did you mean true?"),
        (
            "CREATE TABLE ks.t (a int, b int, PRIMARY KEY (a, b)) WITH CLUSTERING ORDER BY (a DESC)",
            "CLUSTERING ORDER names the clustering columns in key order: b",
        ),
    ],
)
def test_refusals_say_what_is_wrong(text: str, message: str) -> None:
    assert message in refusal(text)


def test_every_error_inside_a_text_has_line_and_column() -> None:
    with pytest.raises(InvalidStatement) as caught:
        parse("CREATE TABLE ks.t (\n  a int,\n  b frozen<int>,\n  PRIMARY KEY (a))")
    assert caught.value.place == {"line": 3, "column": 12}


def test_long_line_is_cut_around_the_place() -> None:
    text = f"CREATE CDC_LOG m ON ks.t WHERE a IN ({', '.join(map(str, range(200)))}) AND b ~ 5 OR {'x' * 100} = 1"
    _, line, caret = refusal(text).split("\n")
    assert len(line) < 130
    assert line.strip().startswith("…")
    assert line.endswith("…")
    assert line[caret.index("^")] == "~"


def test_deep_nesting_is_refused_and_the_bound_is_usable() -> None:
    parse_predicate("NOT " * (DEPTH_MAX - 4) + "a")
    assert "nest deeper" in refusal(f"CREATE CDC_LOG m ON ks.t WHERE {'NOT ' * 5000} a")
    assert "nest deeper" in refusal(f"CREATE TABLE ks.t (a {'list<' * 3000}int{'>' * 3000} PRIMARY KEY)")


def test_parentheses_without_meaning_do_not_count_as_nesting() -> None:
    assert parse_predicate("(" * 1000 + "a" + ")" * 1000) == Truth(A)


def test_too_long_statement_is_refused() -> None:
    assert "characters" in refusal("CREATE CDC_LOG m ON ks.t" + " " * STATEMENT_CHARS_MAX)


def test_table_without_keyspace_takes_the_sessions() -> None:
    assert TableName(None, "t").resolve("ks") == ("ks", "t")
    assert TableName("other", "t").resolve("ks") == ("other", "t")
    with pytest.raises(InvalidStatement, match=r"table t has no keyspace: write keyspace\.t"):
        TableName(None, "t").resolve(None)
