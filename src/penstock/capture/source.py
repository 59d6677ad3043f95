"""Source: the contract between a kind of source and the agent that runs it.

A source supplies what is its own: how its log is read, where a reader stands in it, and what its changes are known by.
Everything else is the agent's (`source_agent`): the change logs, repeats after a crash, masks, places on disk, waiting,
status. All methods are called by one thread, the agent's; `figures` and `checks` may be called by any other, too.

The order of steps is the same for all, and it is what makes a crash harmless at any moment: what was read is durable in
the change logs, then the place after it is saved, and only then is the source told (`durable`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.capture.repeats import ChangeKeys
from penstock.capture.status import Check
from penstock.model.batch import ChangeBatch
from penstock.model.schema import TableSchema

# Where a reader stands, in the source's own terms: what JSON can hold.
Place = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reading:
    """What one read gave. Batches of one table are in its order."""

    batches: Sequence[ChangeBatch]
    # After all of them. A source that is opened here gives what follows, and nothing of these.
    place: Place
    # What tables are from here on, also when no change comes of it.
    schemas: Sequence[TableSchema] = ()


class Source(Protocol):
    """One source of changes."""

    @property
    def kind(self) -> str:
        """The kind, as the settings name it. A place belongs to one kind."""
        ...

    @property
    def keys(self) -> ChangeKeys:
        """What changes are known by when they are read again."""
        ...

    @property
    def ended(self) -> bool:
        """Whether nothing will ever come any more, once a read has given nothing."""
        ...

    def open(self, place: Place | None) -> tuple[str, str]:
        """Make ready to read on after `place`, or from the beginning. The node's name and data centre, or empty."""
        ...

    def read(self, bytes_max: int) -> Reading | None:
        """About so much of what is new, in little time; None when there is nothing now.

        Raises Exhausted when something ran out, and may be called again then; any other error ends the agent, after
        all that was read is durable and the place saved.
        """
        ...

    def durable(self, place: Place) -> None:
        """All up to this place is on disk, and the place too: it will never be asked for what is before it."""
        ...

    def tables(self) -> Sequence[TableSchema]:
        """The tables that are captured, as they are defined now."""
        ...

    def figures(self) -> Mapping[str, float | int]:
        """What the source counts, by the names of metrics (`telemetry`)."""
        ...

    def checks(self) -> Sequence[Check]:
        """How the source's parts are."""
        ...

    def close(self) -> None:
        """Give back what `open` took, also after a failure."""
        ...
