"""The statements of the matrix: every type and every kind of write that CQL has, table by table.

Most are CQL files in `statements`; those that repeat themselves for every type are made here. What must come out is
written nowhere: the node itself says it when it is asked at the end (`SELECT JSON`, WRITETIME and TTL). Values are
chosen at the ends of their types' ranges.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

KEYSPACE = "matrix"
FILES = Path(__file__).parent / "statements"


@dataclass(frozen=True)
class Case:
    """Statements for the versions from `since` to before `until` that write at least commit-log format `log_format`."""

    name: str
    statements: tuple[str, ...]
    since: tuple[int, int] = (3, 11)
    until: tuple[int, int] = (99, 0)
    log_format: int = 6

    def runs_on(self, number: tuple[int, int], log_format: int) -> bool:
        return self.since <= number < self.until and log_format >= self.log_format

    @property
    def tables(self) -> list[str]:
        """The tables and views that are compared in the end, as CQL spells them."""
        made: dict[str, bool] = {}
        for statement in self.statements:
            match = re.match(r'CREATE (?:TABLE|MATERIALIZED VIEW) ("(?:[^"]|"")+"|\w+)', statement)
            if match:
                made[match.group(1)] = "cdc = false" not in statement
        return [name for name, captured in made.items() if captured]


def read(path: Path) -> Case:
    """A case from its file. Statements end with a semicolon at the end of a line; a batch ends with APPLY BATCH."""
    text = path.read_text(encoding="utf-8")
    since = re.search(r"^-- since (\d+)\.(\d+)$", text, re.MULTILINE)
    until = re.search(r"^-- before (\d+)\.(\d+)$", text, re.MULTILINE)
    least = re.search(r"^-- format (\d+)$", text, re.MULTILINE)
    statements, lines = [], []
    for line in text.splitlines():
        if not line.strip() or line.startswith("--"):
            continue
        lines.append(line.strip())
        if line.endswith(";") and (not lines[0].startswith("BEGIN") or line == "APPLY BATCH;"):
            statements.append(" ".join(lines).removesuffix(";"))
            lines = []
    assert not lines, f"{path.name} ends inside a statement"
    return Case(
        path.stem.replace("_", " "),
        tuple(statements),
        since=(int(since[1]), int(since[2])) if since else (3, 11),
        until=(int(until[1]), int(until[2])) if until else (99, 0),
        log_format=int(least[1]) if least else 6,
    )


TIMEUUID_1 = "50554d6e-29bb-11e5-b345-feff819cdc9f"
TIMEUUID_2 = "13814000-1dd2-11b2-8080-808080808080"
# Literals of every simple type.
VALUES: dict[str, tuple[str, ...]] = {
    "ascii": ("'plain'", "''", "'it''s ~'"),
    "bigint": ("0", "-9223372036854775808", "9223372036854775807"),
    "blob": ("0x", "0x00ff80", "0x" + "ab" * 300),
    "boolean": ("true", "false"),
    "date": ("'1970-01-01'", "'2024-02-29'", "'1600-12-31'"),
    "decimal": ("0", "-1234567890.0123456789", "1E+30", "0.00", "1E-30"),
    "double": ("1.5", "-0.0", "1.7976931348623157E308", "4.9E-324", "0.1", "-123456789.125"),
    "duration": ("1y2mo3d4h5m6s7ms8us9ns", "-2mo1d", "0s"),
    "float": ("1.5", "3.4028235E38", "1.4E-45", "0.1", "16777216.0"),
    "inet": ("'127.0.0.1'", "'2001:db8::1'", "'255.255.255.255'"),
    "int": ("0", "-2147483648", "2147483647"),
    "smallint": ("0", "-32768", "32767"),
    "text": ("'plain'", "''", "'naïve 😀 \"quoted\" \\ back'", "'line\nbreak\ttab'"),
    "time": ("'00:00:00'", "'23:59:59.999999999'", "'12:34:56.000001'"),
    "timestamp": ("0", "'2024-02-29T12:34:56.789Z'", "-12219292800000", "'1969-12-31T23:59:59.999Z'"),
    "timeuuid": (TIMEUUID_1, TIMEUUID_2),
    "tinyint": ("0", "-128", "127"),
    "uuid": ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-4fff-bfff-ffffffffffff"),
    "varint": ("0", "-1", "128", "-129", "123456789012345678901234567890", "-170141183460469231731687303715884105728"),
}
# A duration has no order, so it can be no key and no element of a set.
ORDERED = [name for name in VALUES if name != "duration"]


def _simple() -> Case:
    columns = ", ".join(f"c_{name} {name}" for name in VALUES)
    out = [f"CREATE TABLE simple (k int PRIMARY KEY, {columns}) WITH cdc = true"]
    for row in range(max(map(len, VALUES.values()))):
        names = ", ".join(f"c_{name}" for name in VALUES)
        values = ", ".join(literals[row % len(literals)] for literals in VALUES.values())
        out.append(f"INSERT INTO simple (k, {names}) VALUES ({row}, {values})")
    # Each column alone, by UPDATE: no row marker.
    for index, (name, literals) in enumerate(VALUES.items()):
        out.append(f"UPDATE simple SET c_{name} = {literals[-1]} WHERE k = {100 + index}")
        out.append(f"UPDATE simple SET c_{name} = null WHERE k = {index % 3}")
        out.append(f"INSERT INTO simple (k, c_{name}) VALUES ({200 + index}, {literals[0]})")
    out += ["UPDATE simple SET c_int = null, c_text = 'kept' WHERE k = 300", "INSERT INTO simple (k) VALUES (301)"]
    return Case("simple", tuple(out))


def _partition_keys() -> Case:
    out = []
    for name in ORDERED:
        table = f"pk_{name}"
        out.append(f"CREATE TABLE {table} (k {name} PRIMARY KEY, v int) WITH cdc = true")
        # An empty partition key is refused.
        literals = [literal for literal in VALUES[name] if literal not in ("''", "0x")]
        out += [f"INSERT INTO {table} (k, v) VALUES ({literal}, {i})" for i, literal in enumerate(literals)]
        out.append(f"DELETE FROM {table} WHERE k = {literals[0]}")
    columns = ", ".join(f"k_{name} {name}" for name in ORDERED)
    names = ", ".join(f"k_{name}" for name in ORDERED)
    out.append(f"CREATE TABLE pk_composite ({columns}, v int, PRIMARY KEY (({names}))) WITH cdc = true")
    for row in range(3):
        values = ", ".join(VALUES[name][row % len(VALUES[name])] for name in ORDERED)
        out.append(f"INSERT INTO pk_composite ({names}, v) VALUES ({values}, {row})")
    return Case("partition keys", tuple(out))


def _clustering_keys() -> Case:
    out = []
    for name in ORDERED:
        for order in ("ASC", "DESC"):
            table = f"ck_{name}_{order.lower()}"
            out.append(
                f"CREATE TABLE {table} (k int, c {name}, v int, PRIMARY KEY (k, c)) "
                f"WITH CLUSTERING ORDER BY (c {order}) AND cdc = true"
            )
            literals = VALUES[name]
            out += [f"INSERT INTO {table} (k, c, v) VALUES (1, {one}, {i})" for i, one in enumerate(literals)]
            out.append(f"DELETE FROM {table} WHERE k = 1 AND c = {literals[0]}")
            out.append(f"DELETE FROM {table} WHERE k = 2 AND c > {literals[0]} AND c <= {literals[1]}")
            out.append(f"UPDATE {table} SET v = 9 WHERE k = 2 AND c = {literals[-1]}")
    return Case("clustering keys", tuple(out))


def _wide_clustering() -> Case:
    names = [f"c{i}" for i in range(40)]
    columns = ", ".join(f"{name} text" for name in names)
    out = [
        f"CREATE TABLE wide_clustering (k int, {columns}, v int, PRIMARY KEY (k, {', '.join(names)})) WITH cdc = true"
    ]
    for row in range(3):
        values = ", ".join("''" if (row + i) % 3 == 0 else f"'{row}-{i}'" for i in range(40))
        out.append(f"INSERT INTO wide_clustering (k, {', '.join(names)}, v) VALUES (1, {values}, {row})")
    some = " AND ".join(f"c{i} = '{1}-{i}'" if (1 + i) % 3 else f"c{i} = ''" for i in range(35))
    out.append(f"DELETE FROM wide_clustering WHERE k = 1 AND {some}")
    return Case("wide clustering", tuple(out))


def _many_columns() -> Case:
    names = [f"c{i:02}" for i in range(80)]
    columns = ", ".join(f"{name} {'int' if i % 2 else 'text'}" for i, name in enumerate(names))
    out = [f"CREATE TABLE many_columns (k int PRIMARY KEY, {columns}) WITH cdc = true"]

    def insert(key: int, chosen: list[int]) -> str:
        values = ", ".join(str(key * 1000 + i) if i % 2 else f"'{key}/{i}'" for i in chosen)
        return f"INSERT INTO many_columns (k, {', '.join(names[i] for i in chosen)}) VALUES ({key}, {values})"

    out += [insert(1, list(range(80))), insert(2, [0, 79]), insert(3, [i for i in range(80) if i not in (5, 70)])]
    out += [insert(4, list(range(40))), insert(5, list(range(63))), insert(6, list(range(64))), insert(7, [64])]
    # A batch names all columns that any of its rows has, so that each row shows a subset of them.
    out.append("BEGIN BATCH " + "; ".join([insert(8, list(range(80))), insert(8, [1, 2])]) + "; APPLY BATCH")
    wide = ", ".join(f"{name} int" for name in names)
    out.append(f"CREATE TABLE many_in_rows (k int, c int, {wide}, PRIMARY KEY (k, c)) WITH cdc = true")
    rows = [list(range(80)), [3], [79], list(range(2, 80)), list(range(0, 80, 2)), list(range(39)), list(range(41)), []]
    inserts = []
    for row, chosen in enumerate(rows):
        columns = ", ".join(["k", "c", *(names[i] for i in chosen)])
        values = ", ".join(["1", str(row), *(str(row * 100 + i) for i in chosen)])
        inserts.append(f"INSERT INTO many_in_rows ({columns}) VALUES ({values})")
    out.append("BEGIN UNLOGGED BATCH " + "; ".join(inserts) + "; APPLY BATCH")
    return Case("many columns", tuple(out))


def _collections() -> Case:
    """Every simple type as element and key of every collection."""
    out = []
    for name in ORDERED:
        table = f"of_{name}"
        out.append(
            f"CREATE TABLE {table} (k int PRIMARY KEY, l list<{name}>, s set<{name}>, m map<{name}, {name}>, "
            f"f frozen<list<{name}>>, g frozen<map<{name}, {name}>>, h frozen<set<{name}>>, u tuple<{name}, int>) "
            "WITH cdc = true"
        )
        literals = VALUES[name]
        items = ", ".join(literals)
        pairs = ", ".join(f"{one}: {one}" for one in literals)
        out.append(
            f"INSERT INTO {table} (k, l, s, m, f, g, h, u) VALUES "
            f"(1, [{items}], {{{items}}}, {{{pairs}}}, [{items}], {{{pairs}}}, {{{items}}}, ({literals[0]}, 1))"
        )
        out.append(f"UPDATE {table} SET l = l + [{literals[0]}], s = s - {{{literals[-1]}}} WHERE k = 1")
        out.append(f"UPDATE {table} SET m[{literals[0]}] = {literals[-1]}, u = (null, 2) WHERE k = 1")
        out.append(f"UPDATE {table} SET s = s + {{{literals[-1]}}}, m = m - {{{literals[-1]}}} WHERE k = 2")
    return Case("collections", tuple(out))


def _ranges() -> Iterator[Case]:
    """Deletions with every kind of bound, on two clustering columns, in both orders."""
    for order in ("ASC", "DESC"):
        table = f"ranges_{order.lower()}"
        out = [
            (
                f"CREATE TABLE {table} (k int, a int, b text, v int, PRIMARY KEY (k, a, b)) "
                f"WITH CLUSTERING ORDER BY (a {order}, b {order}) AND cdc = true"
            )
        ]
        deletes = [
            "a > 2", "a >= 2", "a < 2", "a <= 2", "a > 1 AND a < 3", "a >= 1 AND a <= 3", "a > 1 AND a <= 3",
            "a >= 1 AND a < 3", "a = 2", "a = 2 AND b > 'b'", "a = 2 AND b >= 'b'", "a = 2 AND b < 'b'",
            "a = 2 AND b <= 'b'", "a = 2 AND b > 'a' AND b < 'c'", "a = 2 AND b = 'b'", "(a, b) > (2, 'a')",
            "(a, b) >= (2, 'a')", "(a, b) < (2, 'b')", "(a, b) <= (2, 'b')",
            "(a, b) > (1, 'b') AND (a, b) <= (3, 'a')", "a >= 1 AND (a, b) < (3, 'b')", "a > 1 AND (a, b) <= (3, 'b')",
        ]  # fmt: skip
        for key, where in enumerate(deletes):
            rows = "; ".join(
                f"INSERT INTO {table} (k, a, b, v) VALUES ({key}, {a}, '{b}', {a})" for a in range(4) for b in "abc"
            )
            out.append(f"BEGIN UNLOGGED BATCH {rows}; APPLY BATCH")
            out.append(f"DELETE FROM {table} WHERE k = {key} AND {where}")
            out.append(f"INSERT INTO {table} (k, a, b, v) VALUES ({key}, 2, 'after', 7)")
        # Overlapping deletions of different times in one mutation make boundaries.
        overlaps = [
            ("a >= 1 AND a <= 5", "a > 3 AND a < 8"), ("a > 1 AND a < 5", "a >= 3 AND a <= 8"),
            ("a >= 1 AND a < 5", "a >= 5 AND a < 8"), ("a >= 1 AND a <= 5", "a > 5 AND a <= 8"),
            ("a > 0", "a <= 4"), ("a >= 2 AND a <= 6", "a = 4"), ("a >= 2 AND a <= 6", "a = 4 AND b > 'a'"),
        ]  # fmt: skip
        for number, (one, other) in enumerate(overlaps):
            key = 100 + number
            rows = "".join(
                f"INSERT INTO {table} (k, a, b, v) VALUES ({key}, {a}, 'b', {a}) USING TIMESTAMP {90 + 10 * a}; "
                for a in range(9)
            )
            for older, newer in ((100, 140), (140, 100)):
                out.append(
                    f"BEGIN UNLOGGED BATCH {rows}"
                    f"DELETE FROM {table} USING TIMESTAMP {older} WHERE k = {key} AND {one}; "
                    f"DELETE FROM {table} USING TIMESTAMP {newer} WHERE k = {key} AND {other}; APPLY BATCH"
                )
        out.append(f"DELETE FROM {table} WHERE k = 3")
        out.append(f"DELETE FROM {table} WHERE k = 77")
        yield Case(f"ranges {order.lower()}", tuple(out))


def _empty_values() -> Case:
    # Types whose values may be empty bytes although no value is; CQL gives such a value only through a blob.
    kinds = {"int": "Int", "bigint": "Bigint", "boolean": "Boolean", "double": "Double", "float": "Float",
             "timestamp": "Timestamp", "uuid": "Uuid", "timeuuid": "Timeuuid", "inet": "Inet",
             "varint": "Varint", "decimal": "Decimal"}  # fmt: skip
    columns = ", ".join(f"c_{name} {name}" for name in kinds)
    out = [f"CREATE TABLE empty_values (k int PRIMARY KEY, {columns}, t text, b blob) WITH cdc = true"]
    out += [f"INSERT INTO empty_values (k, c_{n}) VALUES (1, blobAs{f}(0x))" for n, f in kinds.items()]
    out.append("INSERT INTO empty_values (k, t, b) VALUES (1, '', 0x)")
    out.append("UPDATE empty_values SET c_int = 5 WHERE k = 1")
    return Case("empty values", tuple(out))


def _large_values() -> Case:
    return Case(
        "large values",
        (
            "CREATE TABLE large (k int PRIMARY KEY, b blob, t text, l list<blob>) WITH cdc = true",
            f"INSERT INTO large (k, b) VALUES (1, 0x{'5a' * 100_000})",
            f"INSERT INTO large (k, t) VALUES (2, '{'é' * 500_000}')",
            f"UPDATE large SET l = [0x{'00' * 40_000}, 0x{'ff' * 40_000}] WHERE k = 3",
        ),
    )


def _long_batch() -> Case:
    rows = " ".join(f"INSERT INTO long_batch (k, c, v) VALUES (1, {i}, 'v{i}');" for i in range(300))
    create = "CREATE TABLE long_batch (k int, c int, v text, PRIMARY KEY (k, c)) WITH cdc = true"
    return Case("long batch", (create, f"BEGIN UNLOGGED BATCH {rows} APPLY BATCH"))


def _random(seed: int, *, lifetimes: bool = True) -> Case:
    """Writes at random times that often are the same, so that ties and late writes happen all the time.

    Before 4.0 ties of cells with a time to live were decided in another way (docs/concepts/merge.md).
    """
    random = Random(seed)
    table = f"random_{seed}"
    out = [
        (
            f"CREATE TABLE {table} (k int, c int, d text, a int, b text, m map<int, int>, s set<text>, l list<int>, "
            "t text static, n map<text, int> static, PRIMARY KEY (k, c, d)) "
            f"WITH CLUSTERING ORDER BY (c {random.choice(['ASC', 'DESC'])}, d ASC) AND cdc = true"
        )
    ]

    def where(parts: int) -> str:
        one = f"k = {random.randint(1, 3)}"
        if parts > 1:
            one += f" AND c = {random.randint(1, 4)}"
        return one + (f" AND d = '{random.choice('xyz')}'" if parts > 2 else "")

    def using(delete: bool = False) -> str:
        text = f"USING TIMESTAMP {random.randint(1000, 1020)}"
        lasting = delete or not lifetimes or random.random() < 0.7
        return text + ("" if lasting else f" AND TTL {random.choice([100000, 200000])}")

    def settings() -> str:
        choices = [
            f"a = {random.randint(0, 6)}", "a = null", f"b = '{random.choice(['', 'p', 'q'])}'",
            f"m[{random.randint(1, 3)}] = {random.randint(1, 3)}", f"m = {{{random.randint(1, 3)}: 1, 9: 9}}",
            f"m = m - {{{random.randint(1, 3)}}}", f"s = s + {{'{random.choice('ab')}'}}",
            f"s = s - {{'{random.choice('ab')}'}}", "s = {'z'}", "s = null",
            f"l = [{random.randint(1, 9)}]", "b = null", f"n['{random.choice('uv')}'] = {random.randint(1, 3)}",
            f"t = '{random.choice('gh')}'",
        ]  # fmt: skip
        picked = {choice.split(" ")[0].split("[")[0]: choice for choice in random.sample(choices, random.randint(1, 4))}
        if picked.keys() <= {"t", "n"}:
            # A row's key with nothing but static columns is refused.
            picked["a"] = "a = 0"
        return ", ".join(picked.values())

    def one() -> str:
        kind = random.randint(0, 13)
        if kind < 6:
            return f"UPDATE {table} {using()} SET {settings()} WHERE {where(3)}"
        if kind < 8:
            key = f"{random.randint(1, 3)}, {random.randint(1, 4)}, '{random.choice('xyz')}'"
            columns, values = random.choice([("", ""), (", a, b", ", 1, 'i'"), (", m, s", ", {5: 5}, {'i'}")])
            return f"INSERT INTO {table} (k, c, d{columns}) VALUES ({key}{values}) {using()}"
        if kind < 9:
            return f"DELETE {random.choice(['a', 'm', 's', 'm[1]'])} FROM {table} {using(True)} WHERE {where(3)}"
        if kind < 10:
            return f"UPDATE {table} {using()} SET t = '{random.choice('ef')}' WHERE {where(1)}"
        if kind < 12:
            bound = random.choice(["c > {0}", "c >= {0}", "c < {0}", "c <= {0}", "c > {0} AND c < {1}", "c = {0}"])
            low, high = sorted(random.sample(range(5), 2))
            return f"DELETE FROM {table} {using(True)} WHERE {where(1)} AND {bound.format(low, high)}"
        return f"DELETE FROM {table} {using(True)} WHERE {where(random.choice([1, 2, 3]))}"

    for _ in range(250):
        if random.random() < 0.2:
            out.append(
                "BEGIN UNLOGGED BATCH " + "; ".join(one() for _ in range(random.randint(2, 6))) + "; APPLY BATCH"
            )
        else:
            out.append(one())
    return Case(f"random {seed}", tuple(out), since=(4, 0) if lifetimes else (3, 11))


CASES: tuple[Case, ...] = (
    # First, so that what it lets expire has expired in the end.
    read(FILES / "lifetimes.cql"),
    *(read(path) for path in sorted(FILES.glob("*.cql")) if path.stem != "lifetimes"),
    _simple(),
    _partition_keys(),
    _clustering_keys(),
    _wide_clustering(),
    _many_columns(),
    _collections(),
    *_ranges(),
    _empty_values(),
    _large_values(),
    _long_batch(),
    _random(1),
    _random(2, lifetimes=False),
)
