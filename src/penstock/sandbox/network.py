"""Network: how messages between nodes are delayed, lost, doubled and overtaken.

Each message draws its own delay, so later ones overtake earlier ones. A cut between two nodes loses everything in both
directions until it is mended. A node's messages to itself always arrive, at once. All draws come from one generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from penstock.sandbox.event_loop import EventLoop


@dataclass(slots=True)
class Conditions:
    """What the network does to messages now; faults change it."""

    delay_us_min: int = 0
    delay_us_max: int = 0
    # Probabilities per message.
    loss: float = 0.0
    duplication: float = 0.0


# A quiet local network, for simulations; the demo has no delay at all.
USUAL = Conditions(delay_us_min=100, delay_us_max=2_000)


class Network:
    """All links of one cluster."""

    def __init__(self, loop: EventLoop, random: Random, conditions: Conditions) -> None:
        self.conditions = conditions
        # What a fault that slows the network goes back to.
        self.usual_delay_us_max = conditions.delay_us_max
        # Further delay of everything to and from a node.
        self.slow_us: dict[str, int] = {}
        self.sent = 0
        self.lost = 0
        self._loop = loop
        self._random = random
        self._cuts: dict[tuple[str, str], int] = {}

    def cut(self, one: Iterable[str], other: Iterable[str]) -> None:
        """Separate two groups of nodes."""
        others = list(other)
        for a in one:
            for b in others:
                self._cuts.setdefault(_pair(a, b), self._loop.now_us())

    def mend(self) -> None:
        """Take all cuts back."""
        self._cuts.clear()

    def cut_since(self, one: str, other: str) -> int | None:
        """Since when two nodes have been separated."""
        return self._cuts.get(_pair(one, other))

    def send(self, source: str, target: str, deliver: Callable[[], None]) -> None:
        """Deliver later, or never, or twice."""
        if source == target:
            self._loop.schedule(0, deliver)
            return
        self.sent += 1
        now = self.conditions
        if _pair(source, target) in self._cuts or (now.loss and self._random.random() < now.loss):
            self.lost += 1
            return
        self._loop.schedule(self._delay(source, target), deliver)
        if now.duplication and self._random.random() < now.duplication:
            self._loop.schedule(self._delay(source, target), deliver)

    def _delay(self, source: str, target: str) -> int:
        now = self.conditions
        drawn = self._random.randint(now.delay_us_min, now.delay_us_max) if now.delay_us_max else 0
        return drawn + self.slow_us.get(source, 0) + self.slow_us.get(target, 0)


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
