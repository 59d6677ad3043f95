"""The fixed scenarios of the schema matrix: each is one way in which a table and its copies could part."""

from __future__ import annotations

from tests.integration.cassandra.ddl.scenario import Scenario
from tests.integration.cassandra.matrix import VALUES

# Later than any clock of a test, and earlier.
LATER = 4102444800000000

COLUMNS = (
    Scenario(
        "a column is added",
        """
CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c)) WITH cdc = true
INSERT INTO t (k, c, v) VALUES (1, 1, 1)
INSERT INTO t (k, c, v) VALUES (1, 2, 2)
--
ALTER TABLE t ADD w text
INSERT INTO t (k, c, w) VALUES (1, 1, 'new')
--
ALTER TABLE t ADD (x map<text, int>, y set<int>)
UPDATE t SET x['a'] = 1, y = y + {3} WHERE k = 1 AND c = 2
UPDATE t SET v = 9 WHERE k = 1 AND c = 1
""",
    ),
    Scenario(
        "a column is added and never written",
        """
CREATE TABLE t (k int PRIMARY KEY, v int) WITH cdc = true
INSERT INTO t (k, v) VALUES (1, 1)
--
ALTER TABLE t ADD w text
--
INSERT INTO t (k, v) VALUES (2, 2)
""",
    ),
    Scenario(
        "a column is dropped",
        """
CREATE TABLE t (k int, c int, v int, w text, PRIMARY KEY (k, c)) WITH cdc = true
INSERT INTO t (k, c, v, w) VALUES (1, 1, 1, 'a')
UPDATE t SET v = 5 WHERE k = 1 AND c = 7
--
ALTER TABLE t DROP v
--
UPDATE t SET w = 'b' WHERE k = 1 AND c = 1
INSERT INTO t (k, c, w) VALUES (2, 2, 'c')
""",
    ),
    Scenario(
        "a column is dropped and added again",
        """
CREATE TABLE t (k int PRIMARY KEY, v text, w int) WITH cdc = true
INSERT INTO t (k, v, w) VALUES (1, 'old', 1)
INSERT INTO t (k, v, w) VALUES (2, 'old', 2)
INSERT INTO t (k, v, w) VALUES (3, 'old', 3)
--
ALTER TABLE t DROP v
ALTER TABLE t ADD v text
INSERT INTO t (k, v, w) VALUES (3, 'new', 3)
--
UPDATE t SET w = 10 WHERE k = 1
INSERT INTO t (k, v) VALUES (4, 'new')
""",
    ),
    Scenario(
        "a column is dropped in one step and added again in the next",
        """
CREATE TABLE t (k int PRIMARY KEY, v text, w int) WITH cdc = true
INSERT INTO t (k, v, w) VALUES (1, 'old', 1)
INSERT INTO t (k, v, w) VALUES (2, 'old', 2)
--
ALTER TABLE t DROP v
UPDATE t SET w = 9 WHERE k = 2
--
ALTER TABLE t ADD v text
--
UPDATE t SET w = 10 WHERE k = 1
INSERT INTO t (k, v) VALUES (4, 'new')
""",
    ),
    Scenario(
        "a column is dropped and added again twice",
        """
CREATE TABLE t (k int PRIMARY KEY, v int, w int) WITH cdc = true
INSERT INTO t (k, v, w) VALUES (1, 1, 1)
--
ALTER TABLE t DROP v
ALTER TABLE t ADD v int
INSERT INTO t (k, v) VALUES (2, 2)
--
ALTER TABLE t DROP v
ALTER TABLE t ADD v int
INSERT INTO t (k, v) VALUES (3, 3)
UPDATE t SET w = 5 WHERE k = 2
--
UPDATE t SET w = 6 WHERE k = 1
""",
    ),
    Scenario(
        "a cell is newer than the drop of its column",
        f"""
CREATE TABLE t (k int PRIMARY KEY, v text, w int, m map<text, int>) WITH cdc = true
INSERT INTO t (k, v, w) VALUES (1, 'of the future', 1) USING TIMESTAMP {LATER}
INSERT INTO t (k, v, w) VALUES (2, 'old', 2)
UPDATE t USING TIMESTAMP {LATER} SET m['later'] = 1 WHERE k = 3
UPDATE t SET m['now'] = 1 WHERE k = 3
--
ALTER TABLE t DROP v
ALTER TABLE t DROP m
UPDATE t SET w = 3 WHERE k = 2
ALTER TABLE t ADD v text
ALTER TABLE t ADD m map<text, int>
--
UPDATE t SET w = 4 WHERE k = 2
UPDATE t SET w = 4 WHERE k = 3
""",
    ),
    Scenario(
        "a column is dropped as of a time",
        """
CREATE TABLE t (k int PRIMARY KEY, v text, w int) WITH cdc = true
INSERT INTO t (k, v, w) VALUES (1, 'at 1000 ms', 1) USING TIMESTAMP 1000000
INSERT INTO t (k, v, w) VALUES (2, 'at 2000 ms', 2) USING TIMESTAMP 2000000
INSERT INTO t (k, v, w) VALUES (3, 'at 1500 ms', 3) USING TIMESTAMP 1500000
--
ALTER TABLE t DROP v USING TIMESTAMP 1500000
INSERT INTO t (k, w) VALUES (4, 4)
ALTER TABLE t ADD v text
--
UPDATE t SET w = 9 WHERE k = 1
--
UPDATE t USING TIMESTAMP 1400000 SET v = 'too late' WHERE k = 1
UPDATE t USING TIMESTAMP 1600000 SET v = 'in time' WHERE k = 3
""",
    ),
    Scenario(
        "a column is dropped again as of an earlier time",
        """
CREATE TABLE t (k int PRIMARY KEY, v text, m map<text, int>, w int) WITH cdc = true
INSERT INTO t (k, v, m, w) VALUES (1, 'gone', {'gone': 1}, 1)
INSERT INTO t (k, v, m, w) VALUES (2, 'gone', {'gone': 1}, 2) USING TIMESTAMP 1000000
--
ALTER TABLE t DROP v
ALTER TABLE t DROP m
INSERT INTO t (k, w) VALUES (3, 3)
ALTER TABLE t ADD v text
ALTER TABLE t ADD m map<text, int>
INSERT INTO t (k, v, m, w) VALUES (4, 'too old', {'too old': 1}, 4) USING TIMESTAMP 2000000
INSERT INTO t (k, v, m, w) VALUES (5, 'stays', {'stays': 1}, 5)
--
! t
ALTER TABLE t DROP v USING TIMESTAMP 1500000
ALTER TABLE t DROP m USING TIMESTAMP 1500000
INSERT INTO t (k, w) VALUES (6, 6)
ALTER TABLE t ADD v text
ALTER TABLE t ADD m map<text, int>
INSERT INTO t (k, v, m, w) VALUES (7, 'new enough', {'new enough': 1}, 7) USING TIMESTAMP 2000000
--
UPDATE t SET w = 10 WHERE k = 1
UPDATE t USING TIMESTAMP 1400000 SET v = 'too late' WHERE k = 2
""",
    ),
    Scenario(
        "a second column is dropped as of an earlier time",
        """
CREATE TABLE t (k int PRIMARY KEY, a text, b text, w int) WITH cdc = true
INSERT INTO t (k, a, b, w) VALUES (1, 'a', 'b', 1) USING TIMESTAMP 1000000
INSERT INTO t (k, a, b, w) VALUES (2, 'a', 'b', 1) USING TIMESTAMP 2000000
--
ALTER TABLE t DROP a
ALTER TABLE t ADD a text
INSERT INTO t (k, w) VALUES (3, 3)
--
ALTER TABLE t DROP b USING TIMESTAMP 1500000
ALTER TABLE t ADD b text
INSERT INTO t (k, w) VALUES (4, 4)
""",
    ),
    Scenario(
        "rows that only a dropped column kept alive",
        """
CREATE TABLE t (k int, c int, v int, w int, s int static, PRIMARY KEY (k, c)) WITH cdc = true
UPDATE t SET v = 1 WHERE k = 1 AND c = 1
UPDATE t SET v = 1, w = 1 WHERE k = 1 AND c = 2
UPDATE t SET s = 1 WHERE k = 2
--
ALTER TABLE t DROP v
ALTER TABLE t DROP s
--
ALTER TABLE t ADD v int
ALTER TABLE t ADD s int static
UPDATE t SET w = 2 WHERE k = 1 AND c = 2
""",
        copied=False,
    ),
    Scenario(
        "static columns are dropped and added again",
        """
CREATE TABLE t (k int, c int, v int, s text static, m map<text, int> static, PRIMARY KEY (k, c)) WITH cdc = true
INSERT INTO t (k, c, v, s, m) VALUES (1, 1, 1, 'old', {'a': 1})
INSERT INTO t (k, s) VALUES (2, 'old')
INSERT INTO t (k, c, v, s) VALUES (3, 1, 1, 'old')
--
ALTER TABLE t DROP s
ALTER TABLE t DROP m
INSERT INTO t (k, c, v) VALUES (1, 2, 2)
--
ALTER TABLE t ADD s text static
ALTER TABLE t ADD m map<text, int> static
UPDATE t SET v = 5 WHERE k = 1 AND c = 1
--
UPDATE t SET s = 'new', m['b'] = 2 WHERE k = 3
INSERT INTO t (k, c, v) VALUES (2, 1, 1)
""",
    ),
    Scenario(
        "collections are dropped and added again",
        """
CREATE TABLE t (k int PRIMARY KEY, m map<text, int>, l list<int>, s set<text>, w int) WITH cdc = true
INSERT INTO t (k, m, l, s, w) VALUES (1, {'a': 1}, [1, 2], {'x'}, 1)
UPDATE t SET m['b'] = 2, l = l + [3], s = s + {'y'} WHERE k = 2
INSERT INTO t (k, m, w) VALUES (3, {'c': 3}, 3)
--
ALTER TABLE t DROP m
ALTER TABLE t DROP l
ALTER TABLE t DROP s
UPDATE t SET w = 2 WHERE k = 2
--
ALTER TABLE t ADD m map<text, int>
ALTER TABLE t ADD l list<int>
ALTER TABLE t ADD s set<text>
UPDATE t SET m['n'] = 9, l = l + [9], s = s + {'n'} WHERE k = 2
--
UPDATE t SET w = 3 WHERE k = 1
DELETE m['c'] FROM t WHERE k = 3
""",
    ),
    Scenario(
        "frozen values are dropped and added again",
        """
CREATE TYPE pair (x int, y text)
CREATE TABLE t (k int PRIMARY KEY, f frozen<list<int>>, u frozen<pair>, p tuple<int, text>, w int) WITH cdc = true
INSERT INTO t (k, f, u, p, w) VALUES (1, [1], {x: 1, y: 'a'}, (1, 'b'), 1)
INSERT INTO t (k, f, u, p, w) VALUES (2, [2], {x: 2, y: 'a'}, (2, 'b'), 1)
--
ALTER TABLE t DROP f
? ALTER TABLE t DROP u
ALTER TABLE t DROP p
--
ALTER TABLE t ADD f frozen<list<int>>
? ALTER TABLE t ADD u frozen<pair>
ALTER TABLE t ADD p tuple<int, text>
INSERT INTO t (k, f, p) VALUES (2, [3], (3, null))
UPDATE t SET w = 2 WHERE k = 1
""",
    ),
    Scenario(
        "a column is added again with another type",
        """
CREATE TABLE t (k int PRIMARY KEY, v text, n int, w int) WITH cdc = true
INSERT INTO t (k, v, n, w) VALUES (1, 'text', 1, 1)
INSERT INTO t (k, v, n, w) VALUES (2, 'text', 2, 2)
--
ALTER TABLE t DROP v
ALTER TABLE t DROP n
INSERT INTO t (k, w) VALUES (3, 3)
--
ALTER TABLE t ADD v blob
? ALTER TABLE t ADD n varint
INSERT INTO t (k, v) VALUES (2, 0xff00)
--
UPDATE t SET w = 10 WHERE k = 1
INSERT INTO t (k, v) VALUES (4, 0x)
""",
    ),
    Scenario(
        "a column is added again with a wider collection",
        """
CREATE TABLE t (k int PRIMARY KEY, m map<text, text>, l list<text>, f frozen<set<text>>, w int) WITH cdc = true
INSERT INTO t (k, m, l, f, w) VALUES (1, {'a': 'b'}, ['c'], {'d'}, 1)
--
ALTER TABLE t DROP m
ALTER TABLE t DROP l
ALTER TABLE t DROP f
--
? ALTER TABLE t ADD m map<text, blob>
? ALTER TABLE t ADD l list<blob>
? ALTER TABLE t ADD f frozen<set<blob>>
? UPDATE t SET m['n'] = 0x00, l = l + [0x01] WHERE k = 1
--
UPDATE t SET w = 2 WHERE k = 1
""",
    ),
    Scenario(
        "a name that the target would give is taken",
        """
CREATE TABLE t (k int PRIMARY KEY, v text, v__2 int, w int) WITH cdc = true
INSERT INTO t (k, v, v__2, w) VALUES (1, 'text', 1, 1)
--
ALTER TABLE t DROP v
ALTER TABLE t ADD v blob
INSERT INTO t (k, v, v__2) VALUES (2, 0x01, 2)
--
UPDATE t SET w = 2 WHERE k = 1
""",
    ),
    Scenario(
        "names that differ by case only",
        """
CREATE TABLE t (k int PRIMARY KEY, v text, "V" int, "a b" text) WITH cdc = true
INSERT INTO t (k, v, "V", "a b") VALUES (1, 'small', 1, 'space')
--
ALTER TABLE t ADD "Added" int
INSERT INTO t (k, v, "Added") VALUES (2, 'small', 2)
--
ALTER TABLE t ADD added text
INSERT INTO t (k, v, "Added", added) VALUES (3, 'small', 3, 'text')
UPDATE t SET "V" = 5 WHERE k = 1
CREATE TABLE "T" (k int PRIMARY KEY, v int) WITH cdc = true
INSERT INTO "T" (k, v) VALUES (1, 1)
--
ALTER TABLE t DROP v
UPDATE t SET "V" = 6 WHERE k = 3
""",
    ),
    Scenario(
        "key columns are renamed",
        """
CREATE TABLE t (k int, c int, d text, v int, s int static, PRIMARY KEY (k, c, d)) WITH cdc = true
INSERT INTO t (k, c, d, v, s) VALUES (1, 1, 'a', 1, 1)
INSERT INTO t (k, c, d, v) VALUES (1, 2, 'b', 2)
INSERT INTO t (k, c, d, v) VALUES (2, 2, 'b', 2)
CREATE TABLE early (k int PRIMARY KEY, v int) WITH cdc = true
ALTER TABLE early RENAME k TO id
INSERT INTO early (id, v) VALUES (1, 1)
--
ALTER TABLE t RENAME c TO place
INSERT INTO t (k, place, d, v) VALUES (1, 3, 'c', 3)
DELETE FROM t WHERE k = 1 AND place = 2
--
ALTER TABLE t RENAME k TO id AND d TO name
UPDATE t SET v = 9 WHERE id = 1 AND place = 1 AND name = 'a'
DELETE FROM t WHERE id = 2
--
INSERT INTO t (id, place, name, v) VALUES (3, 1, 'a', 1)
UPDATE t SET s = 7 WHERE id = 1
""",
    ),
    Scenario(
        "a key column is renamed and its name is used again",
        """
CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c)) WITH cdc = true
INSERT INTO t (k, c, v) VALUES (1, 1, 1)
--
ALTER TABLE t RENAME c TO d
ALTER TABLE t ADD c text
INSERT INTO t (k, d, v, c) VALUES (1, 2, 2, 'regular')
--
UPDATE t SET c = 'regular' WHERE k = 1 AND d = 1
""",
    ),
)

TABLES = (
    Scenario(
        "truncate",
        """
CREATE TABLE t (k int, c int, v int, s int static, PRIMARY KEY (k, c)) WITH cdc = true
INSERT INTO t (k, c, v, s) VALUES (1, 1, 1, 1)
INSERT INTO t (k, c, v, s) VALUES (2, 1, 1, 1)
CREATE TABLE emptied (k int PRIMARY KEY, v int) WITH cdc = true
INSERT INTO emptied (k, v) VALUES (1, 1)
--
TRUNCATE t
TRUNCATE emptied
INSERT INTO t (k, c, v) VALUES (2, 1, 2)
--
TRUNCATE t
TRUNCATE t
--
INSERT INTO t (k, c, v) VALUES (3, 1, 3)
UPDATE t SET s = 1 WHERE k = 2
""",
    ),
    Scenario(
        "rows and a truncate and rows in one step",
        """
CREATE TABLE t (k int PRIMARY KEY, v int) WITH cdc = true
INSERT INTO t (k, v) VALUES (1, 1)
INSERT INTO t (k, v) VALUES (2, 1)
TRUNCATE t
INSERT INTO t (k, v) VALUES (2, 2)
INSERT INTO t (k, v) VALUES (3, 2)
--
INSERT INTO t (k, v) VALUES (4, 1)
TRUNCATE t
INSERT INTO t (k, v) VALUES (3, 3)
TRUNCATE t
INSERT INTO t (k, v) VALUES (5, 3)
""",
    ),
    Scenario(
        "a truncate and times that do not follow it",
        f"""
CREATE TABLE t (k int PRIMARY KEY, v text) WITH cdc = true
INSERT INTO t (k, v) VALUES (1, 'of the future') USING TIMESTAMP {LATER}
INSERT INTO t (k, v) VALUES (2, 'the same') USING TIMESTAMP 1000
INSERT INTO t (k, v) VALUES (3, 'now')
--
TRUNCATE t
INSERT INTO t (k, v) VALUES (1, 'of the past') USING TIMESTAMP 500
INSERT INTO t (k, v) VALUES (2, 'the same') USING TIMESTAMP 1000
INSERT INTO t (k, v) VALUES (4, 'older') USING TIMESTAMP 10
--
UPDATE t USING TIMESTAMP 400 SET v = 'too old' WHERE k = 1
UPDATE t USING TIMESTAMP 600 SET v = 'newer' WHERE k = 1
""",
    ),
    Scenario(
        "a truncate and deletions from before it",
        f"""
CREATE TABLE t (k int, c int, v int, m map<int, int>, PRIMARY KEY (k, c)) WITH cdc = true
DELETE FROM t USING TIMESTAMP {LATER} WHERE k = 1
DELETE FROM t USING TIMESTAMP {LATER} WHERE k = 2 AND c > 1
DELETE FROM t USING TIMESTAMP {LATER} WHERE k = 3 AND c = 1
DELETE m FROM t USING TIMESTAMP {LATER} WHERE k = 4 AND c = 1
DELETE v FROM t USING TIMESTAMP {LATER} WHERE k = 4 AND c = 1
--
TRUNCATE t
INSERT INTO t (k, c, v) VALUES (1, 1, 1)
INSERT INTO t (k, c, v) VALUES (2, 2, 1)
INSERT INTO t (k, c, v) VALUES (3, 1, 1)
UPDATE t SET m[1] = 1, v = 1 WHERE k = 4 AND c = 1
--
UPDATE t SET v = 2 WHERE k = 1 AND c = 1
""",
    ),
    Scenario(
        "a truncate around a column that is dropped and added",
        """
CREATE TABLE t (k int PRIMARY KEY, v int, w int) WITH cdc = true
INSERT INTO t (k, v, w) VALUES (1, 1, 1)
--
ALTER TABLE t DROP v
TRUNCATE t
INSERT INTO t (k, w) VALUES (2, 2)
--
ALTER TABLE t ADD v int
INSERT INTO t (k, v, w) VALUES (3, 3, 3)
TRUNCATE t
--
INSERT INTO t (k, w) VALUES (3, 4)
""",
    ),
    Scenario(
        "a table is dropped and made again",
        """
CREATE TABLE t (k int, c int, v int, s int static, PRIMARY KEY (k, c)) WITH cdc = true
INSERT INTO t (k, c, v, s) VALUES (1, 1, 1, 1)
INSERT INTO t (k, c, v, s) VALUES (2, 1, 1, 1)
--
DROP TABLE t
CREATE TABLE t (k int, c int, v int, s int static, PRIMARY KEY (k, c)) WITH cdc = true
INSERT INTO t (k, c, v) VALUES (1, 1, 2)
--
DROP TABLE t
CREATE TABLE t (k int, c int, v int, s int static, PRIMARY KEY (k, c)) WITH cdc = true
INSERT INTO t (k, c, v) VALUES (3, 1, 3) USING TIMESTAMP 5
--
UPDATE t SET s = 1 WHERE k = 3
""",
    ),
    Scenario(
        "a table is dropped and made again and stays empty",
        """
CREATE TABLE t (k int PRIMARY KEY, v int) WITH cdc = true
INSERT INTO t (k, v) VALUES (1, 1)
--
DROP TABLE t
--
CREATE TABLE t (k int PRIMARY KEY, v int) WITH cdc = true
""",
    ),
    Scenario(
        "a table is made again with other columns",
        """
CREATE TABLE t (k int PRIMARY KEY, v int, w text) WITH cdc = true
INSERT INTO t (k, v, w) VALUES (1, 1, 'a')
--
DROP TABLE t
CREATE TABLE t (k int PRIMARY KEY, w int, x set<int>) WITH cdc = true
INSERT INTO t (k, w, x) VALUES (2, 2, {1})
--
DROP TABLE t
CREATE TABLE t (k int PRIMARY KEY, w text, v bigint) WITH cdc = true
INSERT INTO t (k, w, v) VALUES (3, 'c', 3)
""",
    ),
    Scenario(
        "a table is made again with another key",
        """
CREATE TABLE t (k int PRIMARY KEY, v int) WITH cdc = true
INSERT INTO t (k, v) VALUES (1, 1)
CREATE TABLE other (k int, c int, v int, PRIMARY KEY (k, c)) WITH cdc = true
INSERT INTO other (k, c, v) VALUES (1, 1, 1)
--
DROP TABLE t
CREATE TABLE t (k text PRIMARY KEY, v int) WITH cdc = true
INSERT INTO t (k, v) VALUES ('text', 2)
DROP TABLE other
CREATE TABLE other (k int, c int, v int, PRIMARY KEY ((k, c))) WITH cdc = true
INSERT INTO other (k, c, v) VALUES (2, 2, 2)
--
INSERT INTO t (k, v) VALUES ('more', 3)
DROP TABLE other
CREATE TABLE other (id uuid PRIMARY KEY, v int) WITH cdc = true
INSERT INTO other (id, v) VALUES (ffffffff-ffff-4fff-bfff-ffffffffffff, 2)
""",
    ),
    Scenario(
        "a table is made again with another clustering order",
        """
CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c)) WITH cdc = true
INSERT INTO t (k, c, v) VALUES (1, 1, 1)
INSERT INTO t (k, c, v) VALUES (1, 2, 1)
--
DROP TABLE t
CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c)) WITH CLUSTERING ORDER BY (c DESC) AND cdc = true
INSERT INTO t (k, c, v) VALUES (1, 1, 1)
INSERT INTO t (k, c, v) VALUES (1, 3, 1)
INSERT INTO t (k, c, v) VALUES (1, 5, 1)
DELETE FROM t WHERE k = 1 AND c > 1 AND c <= 3
--
DELETE FROM t WHERE k = 1 AND c < 2
""",
    ),
    Scenario(
        "a table is made again with the id that it had",
        """
CREATE TABLE t (k int PRIMARY KEY, v int) WITH ID = 5a1c395e-b41f-11e5-9f22-ba0be0483c18 AND cdc = true
INSERT INTO t (k, v) VALUES (1, 1)
--
DROP TABLE t
? CREATE TABLE t (k int PRIMARY KEY, v int) WITH ID = 5a1c395e-b41f-11e5-9f22-ba0be0483c18 AND cdc = true
? INSERT INTO t (k, v) VALUES (2, 2)
--
? UPDATE t SET v = 3 WHERE k = 2
""",
    ),
    Scenario(
        "a keyspace is dropped and made again",
        """
CREATE TYPE pair (x int, y text)
CREATE TABLE t (k int PRIMARY KEY, v int, u frozen<pair>) WITH cdc = true
INSERT INTO t (k, v, u) VALUES (1, 1, {x: 1})
CREATE TABLE other (k int PRIMARY KEY, v int) WITH cdc = true
INSERT INTO other (k, v) VALUES (1, 1)
--
DROP KEYSPACE KS
CREATE KEYSPACE KS WITH replication = EVERYWHERE
USE KS
CREATE TABLE t (k int PRIMARY KEY, v int) WITH cdc = true
INSERT INTO t (k, v) VALUES (2, 2)
--
CREATE TYPE pair (a text)
CREATE TABLE other (k int PRIMARY KEY, v frozen<pair>) WITH cdc = true
INSERT INTO other (k, v) VALUES (2, {a: 'b'})
""",
    ),
    Scenario(
        "a table is altered in what does not concern its rows",
        """
CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c)) WITH cdc = true
INSERT INTO t (k, c, v) VALUES (1, 1, 1)
--
ALTER TABLE t WITH comment = 'a comment' AND gc_grace_seconds = 0
ALTER TABLE t WITH compaction = {'class': 'LeveledCompactionStrategy'}
UPDATE t SET v = 2 WHERE k = 1 AND c = 1
--
ALTER TABLE t WITH default_time_to_live = 86400
INSERT INTO t (k, c, v) VALUES (1, 2, 2)
CREATE INDEX ON t (v)
--
DROP INDEX t_v_idx
ALTER TABLE t WITH default_time_to_live = 0
DELETE FROM t WHERE k = 1 AND c = 1
""",
    ),
    Scenario(
        "cdc is off for a while",
        """
CREATE TABLE t (k int PRIMARY KEY, v int, w int) WITH cdc = true
INSERT INTO t (k, v, w) VALUES (1, 1, 1)
CREATE TABLE emptied (k int PRIMARY KEY, v int) WITH cdc = true
INSERT INTO emptied (k, v) VALUES (1, 1)
CREATE TABLE made (k int PRIMARY KEY, v int) WITH cdc = true
INSERT INTO made (k, v) VALUES (1, 1)
--
ALTER TABLE t WITH cdc = false
ALTER TABLE t DROP v
ALTER TABLE t ADD v int
ALTER TABLE emptied WITH cdc = false
TRUNCATE emptied
DROP TABLE made
CREATE TABLE made (k int PRIMARY KEY, v int)
--
ALTER TABLE t WITH cdc = true
UPDATE t SET w = 2 WHERE k = 1
ALTER TABLE emptied WITH cdc = true
INSERT INTO emptied (k, v) VALUES (2, 2)
ALTER TABLE made WITH cdc = true
INSERT INTO made (k, v) VALUES (2, 2)
""",
    ),
)

TYPES = (
    Scenario(
        "a user type grows and its fields are renamed",
        """
CREATE TYPE pair (x int, y text)
CREATE TABLE t (k int PRIMARY KEY, u pair, f frozen<pair>, l list<frozen<pair>>, m map<text, frozen<pair>>,
  p tuple<int, frozen<pair>>) WITH cdc = true
INSERT INTO t (k, u, f, l, m, p) VALUES (1, {x: 1, y: 'a'}, {x: 1, y: 'a'}, [{x: 1}], {'a': {y: 'b'}}, (1, {x: 1}))
UPDATE t SET u.x = 5 WHERE k = 2
--
ALTER TYPE pair ADD z int
UPDATE t SET u.z = 7 WHERE k = 1
INSERT INTO t (k, f, l) VALUES (3, {x: 1, z: 2}, [{z: 1}])
--
ALTER TYPE pair RENAME x TO ex
UPDATE t SET u.ex = 8 WHERE k = 2
INSERT INTO t (k, f) VALUES (4, {ex: 4, z: 4})
--
UPDATE t SET u = {ex: 9} WHERE k = 1
""",
        copied=False,
    ),
    Scenario(
        "a user type inside of a user type grows",
        """
CREATE TYPE inner_type (a int)
CREATE TYPE outer_type (i frozen<inner_type>, n int)
CREATE TABLE t (k int PRIMARY KEY, u outer_type, f frozen<outer_type>, s frozen<outer_type> ) WITH cdc = true
INSERT INTO t (k, u, f) VALUES (1, {i: {a: 1}, n: 1}, {i: {a: 1}})
--
ALTER TYPE inner_type ADD b text
UPDATE t SET u.i = {a: 2, b: 'x'} WHERE k = 1
INSERT INTO t (k, f) VALUES (2, {i: {b: 'y'}})
--
ALTER TYPE inner_type RENAME a TO alpha
UPDATE t SET s = {i: {alpha: 3}} WHERE k = 1
""",
    ),
    Scenario(
        "a user type in the clustering key grows",
        """
CREATE TYPE pair (x int, y text)
CREATE TABLE t (k int, c frozen<pair>, v int, w int, PRIMARY KEY (k, c)) WITH cdc = true
INSERT INTO t (k, c, v) VALUES (1, {x: 1, y: 'a'}, 1)
INSERT INTO t (k, c, v) VALUES (1, {x: 2, y: 'b'}, 1)
--
ALTER TYPE pair ADD z int
INSERT INTO t (k, c, w) VALUES (1, {x: 1, y: 'a'}, 2)
INSERT INTO t (k, c, w) VALUES (1, {x: 1, y: 'a', z: 3}, 3)
--
DELETE FROM t WHERE k = 1 AND c = {x: 2, y: 'b'}
UPDATE t SET v = 7 WHERE k = 1 AND c = {x: 1, y: 'a', z: null}
""",
    ),
    Scenario(
        "a user type in the partition key gets other names",
        """
CREATE TYPE pair (x int, y text)
CREATE TABLE t (k frozen<pair> PRIMARY KEY, v int) WITH cdc = true
INSERT INTO t (k, v) VALUES ({x: 1, y: 'a'}, 1)
INSERT INTO t (k, v) VALUES ({x: 2, y: 'a'}, 1)
--
ALTER TYPE pair RENAME x TO ex
INSERT INTO t (k, v) VALUES ({ex: 3, y: 'a'}, 3)
--
DELETE FROM t WHERE k = {ex: 1, y: 'a'}
UPDATE t SET v = 2 WHERE k = {ex: 2, y: 'a'}
""",
    ),
    Scenario(
        "clustering keys that are equal in value",
        """
CREATE TABLE t (k int, c decimal, v int, w int, PRIMARY KEY (k, c)) WITH cdc = true
INSERT INTO t (k, c, v) VALUES (1, 1.0, 1)
INSERT INTO t (k, c, w) VALUES (1, 1.00, 2)
INSERT INTO t (k, c, v) VALUES (1, 10, 1)
INSERT INTO t (k, c, v) VALUES (1, 0, 1)
CREATE TABLE f (k int, c frozen<list<decimal>>, d frozen<map<decimal, int>>, v int, w int, PRIMARY KEY (k, c, d))
  WITH cdc = true
INSERT INTO f (k, c, d, v) VALUES (1, [1.0, 2], {1.0: 1}, 1)
CREATE TABLE n (k int, c varint, d double, v int, w int, PRIMARY KEY (k, c, d)) WITH cdc = true
INSERT INTO n (k, c, d, v) VALUES (1, 1, 0.0, 1)
INSERT INTO n (k, c, d, v) VALUES (1, 1, -0.0, 1)
INSERT INTO n (k, c, d, v) VALUES (1, 2, 0.0, 1)
--
DELETE FROM t WHERE k = 1 AND c = 1E+1
INSERT INTO t (k, c, w) VALUES (1, 0.000, 5)
INSERT INTO f (k, c, d, w) VALUES (1, [1.00, 2.0], {1: 1}, 2)
INSERT INTO n (k, c, d, w) VALUES (1, blob_as_varint(0x0001), 0.0, 2)
DELETE FROM n WHERE k = 1 AND c = blob_as_varint(0x000002)
--
ALTER TABLE t ADD x int
UPDATE t SET x = 1 WHERE k = 1 AND c = 1.000
DELETE FROM t WHERE k = 1 AND c >= 0.0 AND c <= 0
""",
    ),
    Scenario(
        "counters",
        """
CREATE TABLE t (k int, c int, n counter, m counter, PRIMARY KEY (k, c)) WITH cdc = true
UPDATE t SET n = n + 5, m = m + 1 WHERE k = 1 AND c = 1
UPDATE t SET n = n - 2 WHERE k = 1 AND c = 2
UPDATE t SET n = n - 2 WHERE k = 2 AND c = 2
--
ALTER TABLE t DROP m
UPDATE t SET n = n + 10 WHERE k = 1 AND c = 1
ALTER TABLE t ADD o counter
? ALTER TABLE t ADD m counter
--
UPDATE t SET o = o + 4 WHERE k = 1 AND c = 2
DELETE FROM t WHERE k = 2
--
TRUNCATE t
UPDATE t SET n = n + 3 WHERE k = 1 AND c = 1
""",
    ),
    Scenario(
        "times to live",
        """
CREATE TABLE t (k int, c int, v int, w int, m map<text, int>, s int static, PRIMARY KEY (k, c)) WITH cdc = true
INSERT INTO t (k, c, v) VALUES (1, 1, 1) USING TTL 2
INSERT INTO t (k, c, v) VALUES (1, 2, 1) USING TTL 86400
UPDATE t USING TTL 2 SET v = 1, m['a'] = 1 WHERE k = 1 AND c = 2
UPDATE t SET m['b'] = 1 WHERE k = 1 AND c = 2
UPDATE t USING TTL 2 SET s = 1 WHERE k = 2
--
ALTER TABLE t DROP v
ALTER TABLE t ADD v int
INSERT INTO t (k, c, w) VALUES (1, 3, 1) USING TTL 2
--
ALTER TABLE t WITH default_time_to_live = 2
INSERT INTO t (k, c, v) VALUES (3, 1, 1)
INSERT INTO t (k, c, v) VALUES (3, 2, 1) USING TTL 0
""",
    ),
    Scenario(
        "deletions of every kind around a new column",
        f"""
CREATE TABLE t (k int, c int, d int, v int, m map<int, int>, s int static, PRIMARY KEY (k, c, d)) WITH cdc = true
INSERT INTO t (k, c, d, v, m, s) VALUES (1, 1, 1, 1, {{1: 1}}, 1)
INSERT INTO t (k, c, d, v) VALUES (1, 1, 2, 1)
INSERT INTO t (k, c, d, v) VALUES (1, 2, 1, 1)
INSERT INTO t (k, c, d, v) VALUES (1, 3, 1, 1) USING TIMESTAMP {LATER}
INSERT INTO t (k, c, d, v, s) VALUES (2, 1, 1, 1, 2)
INSERT INTO t (k, c, d, v, s) VALUES (3, 1, 1, 1, 3)
--
ALTER TABLE t ADD w text
DELETE FROM t WHERE k = 1 AND c = 1
DELETE FROM t WHERE k = 1 AND c > 1 AND c < 9
DELETE s FROM t WHERE k = 2
INSERT INTO t (k, c, d, w) VALUES (1, 1, 2, 'again')
--
ALTER TABLE t DROP m
DELETE FROM t WHERE k = 3
INSERT INTO t (k, c, d, w) VALUES (3, 1, 1, 'older') USING TIMESTAMP 10
BEGIN BATCH INSERT INTO t (k, c, d, w) VALUES (4, 1, 1, 'batch') DELETE FROM t WHERE k = 2 AND c = 1 APPLY BATCH
INSERT INTO t (k, c, d, w) VALUES (5, 1, 1, 'once') IF NOT EXISTS
--
UPDATE t SET w = 'set' WHERE k = 5 AND c = 1 AND d = 1 IF w = 'once'
UPDATE t SET v = null WHERE k = 4 AND c = 1 AND d = 1
""",
    ),
)


def every_type() -> Scenario:
    """Each simple type as a regular and as a static column, and in collections, through a drop and a truncate."""
    columns = ", ".join(f"r_{name} {name}, s_{name} {name} static" for name in VALUES)
    lines = [f"CREATE TABLE t (k int, c int, w int, {columns}, PRIMARY KEY (k, c)) WITH cdc = true"]
    names = ", ".join(f"r_{name}, s_{name}" for name in VALUES)

    def inserted(key: int, shift: int) -> str:
        values = [literals[(key + shift) % len(literals)].replace("\n", " ") for literals in VALUES.values()]
        both = ", ".join(f"{value}, {value}" for value in values)
        return f"INSERT INTO t (k, c, {names}) VALUES ({key}, 1, {both})"

    lines += [inserted(1, 0), inserted(2, 0), inserted(3, 0), "--"]
    lines += [f"ALTER TABLE t DROP ({names})"]
    lines += ["UPDATE t SET w = 1 WHERE k = 3 AND c = 1", "--"]
    lines += [f"ALTER TABLE t ADD ({columns})"]
    lines += [inserted(2, 1), "UPDATE t SET w = 2 WHERE k = 1 AND c = 1", "--", inserted(4, 2)]
    lines += ["UPDATE t SET w = 3 WHERE k = 3 AND c = 1"]
    return Scenario("every type dropped and added again", "\n".join(lines))


FIXED = (*COLUMNS, *TABLES, *TYPES, every_type())
