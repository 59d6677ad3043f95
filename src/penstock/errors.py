"""Every error that Penstock raises on purpose, and what to do about each.

    PenstockError
    ├── InvalidInput            what the caller or operator gave cannot be used
    │   ├── InvalidSetting      a setting is unknown or out of range
    │   ├── InvalidStatement    a statement does not parse, or names what does not exist
    │   ├── InvalidSchema       a table schema contradicts itself
    │   ├── InvalidValue        a value does not fit its column's type
    │   └── KeyStoreError       a key store does not open, or does not hold the key
    ├── CorruptData             bytes on disk or on the wire are not what was written
    │   ├── CorruptLog          damage inside a change-log file
    │   ├── CorruptCheckpoint   a checkpoint that is empty, edited or of another table
    │   ├── CorruptFrame        a frame on a socket that breaks the protocol
    │   └── CorruptSegment      a commit-log segment whose header cannot be read
    ├── UnsupportedFormat       of a version that this Penstock does not read
    ├── LogError                the change log cannot do what was asked
    │   ├── LogLocked           another writer has the directory
    │   ├── WriterFenced        a newer writer has taken over; this one must stop
    │   ├── LogFailed           a sync failed; no acknowledgement until reopened
    │   ├── LogClosed           used after close
    │   ├── Exhausted           something ran out; nothing was acknowledged, nothing is damaged
    │   │   ├── DiskFull        … room on a disk
    │   │   └── TooManyFiles    … file descriptors
    │   ├── StorageError        any other refusal of the file system
    │   ├── PositionAhead       a position behind the log's end
    │   ├── PositionBehind      a commit that would take a checkpoint back
    │   ├── SubscriptionLocked  another process uses the subscription
    │   └── ChangesLost         retention removed what this subscription had not read
    ├── Unavailable             too few replicas acknowledged
    ├── Unreachable             the database does not answer, or refuses the login
    │   └── SparkFailed         Spark did not start
    ├── ServerFailed            a server that the sandbox started did not come up, or ended
    ├── ToolMissing             a program of another project is needed and not installed
    │   └── ExtraMissing        packages of an extra are needed and not installed
    ├── AccessDenied            a client whose token is none, or lacks the right
    ├── AgentUnreachable        an agent does not serve its logs, or not in time
    ├── SchemaChanged           a stream of plain columns meets a newer version of its table
    ├── SchemaRefused           a target does not take a table's schema
    │   └── SchemaUnfit         … and no policy could make it
    ├── PipelineLocked          another driver runs the pipeline
    ├── PipelineFenced          another driver has taken the pipeline over; this one must stop
    ├── DeliveryFailed          a target did not take a batch; it will be tried again
    ├── DeliveryInDoubt         whether a target has a batch already cannot be told; it is not sent
    ├── TargetRefused           a target refuses the login, the rights or the whole request
    └── DeadLettersFull         no room for another dead letter

Each class says whether a retry can help (`timed`: by itself after a while, `manual`: after someone acted,
`never`) and gives the operator a hint. Messages name places (file, offset, table, position), never row values.
Errors pickle, because they cross process borders.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


class Retry(StrEnum):
    """Whether trying again can help."""

    TIMED = "timed"
    MANUAL = "manual"
    NEVER = "never"


class PenstockError(Exception):
    """The root of the tree. `place` holds where it happened, as names and numbers."""

    retry: ClassVar[Retry] = Retry.MANUAL
    hint: ClassVar[str] = ""

    def __init__(self, message: str, **place: object) -> None:
        super().__init__(message)
        self.message = message
        self.place = {key: value for key, value in place.items() if value is not None}

    @property
    def advice(self) -> str:
        """What to do about this very error: the hint of its class, unless the place tells more."""
        return self.hint

    def __str__(self) -> str:
        if not self.place:
            return self.message
        where = ", ".join(f"{key} {value}" for key, value in self.place.items())
        return f"{self.message} ({where})"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.place)


def _rebuild(kind: type[PenstockError], message: str, place: dict[str, object]) -> PenstockError:
    return kind(message, **place)


class InvalidInput(PenstockError):
    retry = Retry.NEVER


class InvalidSetting(InvalidInput):
    hint = "Compare the setting's name and range with docs/reference/settings.md."


class InvalidStatement(InvalidInput):
    hint = "The caret shows the place; docs/reference/statements.md has the grammar."


class InvalidSchema(InvalidInput):
    hint = "Fix the table schema; nothing was written."


class InvalidValue(InvalidInput):
    hint = "The value does not fit the column's type; nothing was written."


class KeyStoreError(InvalidInput):
    retry = Retry.MANUAL
    hint = "Give the key store, password and key alias that the node's cassandra.yaml names."


class CorruptData(PenstockError):
    retry = Retry.MANUAL


class CorruptLog(CorruptData):
    hint = (
        "Run `penstock log verify` on the directory; restore the named file from a copy, "
        "or read on past the damage explicitly."
    )


class CorruptCheckpoint(CorruptData):
    hint = "Restore the checkpoint file from a copy, or delete it and choose a start position again."


class CorruptFrame(CorruptData):
    retry = Retry.NEVER
    hint = "The peer does not speak this protocol; see docs/formats/listener.md."


class CorruptSegment(CorruptData):
    hint = "The file is damaged or no commit-log segment. It was left as it is; a replica's copy has the same writes."


class UnsupportedFormat(PenstockError):
    retry = Retry.NEVER
    hint = "Read it with the version that wrote it, or upgrade this Penstock. The file was left as it is."


class LogError(PenstockError):
    pass


class LogLocked(LogError):
    hint = "One writer per directory: stop the other process, or give this one another directory."


class WriterFenced(LogError):
    retry = Retry.NEVER
    hint = "Another writer took this log over. This process must stop writing to it."


class LogFailed(LogError):
    hint = "Check the disk, then open the log again: opening verifies the tail before it acknowledges anything."


class LogClosed(LogError):
    retry = Retry.NEVER
    hint = "Open the log again."


class Exhausted(LogError):
    retry = Retry.TIMED


class DiskFull(Exhausted):
    hint = "Free some space; appends go on by themselves when there is room."


class TooManyFiles(Exhausted):
    hint = "The work goes on by itself when files are closed. Raise the limit of open files (ulimit -n, LimitNOFILE)."


_PORT_HINT = "Stop what has the port (ss -ltnp names it), give another one, or 0 for any that is free."


class StorageError(LogError):
    hint = "Check that the directory exists and that this user may read and write it."

    @property
    def advice(self) -> str:
        return _PORT_HINT if "port" in self.place else self.hint


class PositionAhead(LogError):
    hint = (
        "The position lies behind the log's end: it belongs to another log, or the log was restored from an older copy."
    )


class PositionBehind(LogError):
    retry = Retry.NEVER
    hint = "A checkpoint never goes back. To read again, open a subscription with another name and a start position."


class SubscriptionLocked(LogError):
    hint = "One process at a time may use a subscription: stop the other one, or take another name."


class ChangesLost(LogError):
    hint = (
        "Retention caps removed changes before they were read: copy the table again (penstock agent snapshot), then "
        "accept the loss."
    )


class Unavailable(PenstockError):
    retry = Retry.TIMED
    hint = "Too few replicas acknowledged. The write may still be applied; write it again with the same timestamp."


class Unreachable(PenstockError):
    retry = Retry.TIMED
    hint = (
        "Check that the node is up, and cassandra.contact_points, port and login. Without a node, table definitions "
        'can come from the commit log or a file: cassandra.schema_from = "log" or "file".'
    )


class SparkFailed(Unreachable):
    hint = (
        "What Spark said stands above. Check pipeline.master, the settings in [pipeline.spark], that Java runs, and "
        "that there is memory for it."
    )


class ServerFailed(PenstockError):
    hint = "The message has what the program itself said last; a node's whole log is system.log in its directory."


class ToolMissing(PenstockError):
    hint = "Install the named program; nothing else is needed."


class ExtraMissing(ToolMissing):
    hint = "Run that line in the environment that this penstock is in; docs/guides/install.md has all extras."


class AccessDenied(PenstockError):
    retry = Retry.NEVER
    hint = "Give a token of the server's settings that has the right, or give it the right there."


class SchemaRefused(PenstockError):
    hint = (
        "Alter the target by hand, or let the sink follow the source (schema_policy evolve) or go on without the new "
        "columns (ignore)."
    )


class PipelineLocked(PenstockError):
    hint = (
        "One driver per checkpoint: stop the other one, or give this pipeline a name and a checkpoint directory of its "
        "own. If the other machine is gone for good and its lock stays, delete the named file."
    )


class PipelineFenced(PenstockError):
    retry = Retry.NEVER
    hint = "This driver commits nothing more, and nothing is lost: the other one goes on from the last batch."


class SchemaUnfit(SchemaRefused):
    hint = (
        "No schema policy makes this fit. Alter the target by hand, or move it away: one that is not there is made as "
        "the table is."
    )


class DeliveryFailed(PenstockError):
    retry = Retry.TIMED
    hint = "The batch is delivered again until the target takes it; nothing is lost meanwhile."


class DeliveryInDoubt(PenstockError):
    hint = (
        "Nothing was sent. Bring the topic back if you can. Otherwise look whether the tables' topics end with the "
        "batch (each record's header names it), then delete sinks/kafka/progress.json in the checkpoint: the pipeline "
        "goes on, and the records of that one batch may come twice."
    )


class AgentUnreachable(PenstockError):
    retry = Retry.TIMED
    hint = "Check that the agent runs, the address and the certificate; reading goes on where it was when it answers."


class SchemaChanged(PenstockError):
    hint = "Start the query again from its checkpoint: it then has the table's new columns, and nothing is left out."


class TargetRefused(PenstockError):
    hint = "Check the sink's address, login and rights in the target; the batch is delivered again after that."


class DeadLettersFull(PenstockError):
    hint = "Look at them with `penstock dead-letters`, then replay or remove them; the batch is delivered again."
