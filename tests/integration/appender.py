"""A small process that appends to a log and says on its standard output what it tried and what was acknowledged.

    python appender.py DIRECTORY FIRST COUNT SMALL

Each line is one write of its own, so that a killed process has said all that it knew: `try N`, `ack N POSITION`,
`fail N ERROR`, `open`, `close`. After a failed log it opens the log anew, after a full disk it goes on with the next
change, as a program that uses the log should.
"""

from __future__ import annotations

import os
import sys

from penstock.errors import LogError, LogFailed
from penstock.formats import avro
from penstock.log.table_log import TableLog
from penstock.model.change import Change, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import INT64, TEXT
from penstock.settings import LogSettings

SCHEMA = TableSchema(TableId("ks", "t"), (Column("id", INT64, Role.PARTITION), Column("v", TEXT)))
SIZES = (3, 400, 1500, 60, 900, 20, 2600)


def text(number: int) -> str:
    """The value of change `number`: as good as random, and known to the reader."""
    return f"{number:06d}" + chr(97 + number % 26) * SIZES[number % len(SIZES)]


def change(number: int) -> Change:
    return Change(Op.INSERT, {"id": number}, {"v": Set(text(number))}, time=number)


def settings(small: bool) -> LogSettings:
    return LogSettings(file_bytes_max=4096, index_bytes=4096) if small else LogSettings()


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def open_log(directory: str, small: bool) -> TableLog:
    """Open it, again when that is refused."""
    for attempt in range(5):
        try:
            log = TableLog.open(directory, SCHEMA, settings=settings(small))
        except LogError as error:
            say("fail", "open", type(error).__name__)
            if attempt == 4:
                raise
        else:
            say("open")
            return log
    raise AssertionError


def main() -> None:
    directory, first, count, small = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "small"
    log = open_log(directory, small)
    for number in range(first, first + count):
        batch = avro.encode(SCHEMA, [change(number)])
        say("try", number)
        try:
            position = log.append(batch)
        except LogFailed as error:
            say("fail", number, type(error).__name__)
            log.close()
            log = open_log(directory, small)
        except LogError as error:
            say("fail", number, type(error).__name__)
        else:
            say("ack", number, position)
    log.close()
    say("close")


if __name__ == "__main__":
    main()
