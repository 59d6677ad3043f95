"""Tally: how many clients a server turned away, and one line about them now and then.

Whoever can connect can be turned away as often as he likes. So each time is counted, and the log gets a line for the
first and then at most one in a while, with the counts since the line before: no client can fill the log.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

import structlog
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from penstock import telemetry

log = structlog.get_logger()

_INTERVAL_S = 10.0


class Tally:
    """The count of one server. Only its event loop counts; any thread may look."""

    def __init__(self, server: str, interval_s: float = _INTERVAL_S) -> None:
        self.server = server
        # By reason, since the server began.
        self.counts: Counter[str] = Counter()
        self._interval_s = interval_s
        self._told: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def note(self, reason: str) -> None:
        """One client was turned away. `reason` is one of a few phrases."""
        self.counts[reason] += 1
        if self._timer is None:
            self._tell()

    def close(self) -> None:
        """Tell what was not told yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.counts != self._told:
            self._write()

    def _tell(self) -> None:
        self._timer = None
        if self.counts == self._told:
            return
        self._write()
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._tell)

    def _write(self) -> None:
        news = self.counts - self._told
        self._told = Counter(self.counts)
        log.warning("clients turned away", server=self.server, clients=news.total(), reasons=dict(news))


def metrics_text(tallies: Iterable[Tally]) -> bytes:
    """The counts in Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counts(list(tallies)))
    return generate_latest(registry)


class _Counts(Collector):
    def __init__(self, tallies: list[Tally]) -> None:
        self._tallies = tallies

    def collect(self) -> Iterable[CounterMetricFamily]:
        text = "Clients that a server turned away, by the reason."
        made = CounterMetricFamily(telemetry.CLIENTS_TURNED_AWAY, text, labels=("server", "reason"))
        for tally in self._tallies:
            for reason, count in list(tally.counts.items()):
                made.add_metric((tally.server, reason), count)
        yield made
