"""A soak: two nodes and their agents under load for as long as wanted, with readers of every kind and floods.

One agent runs from the beginning to the end: its memory, descriptors, threads and disk are the ones that must stay
flat, under floods of connections, readers that are too slow, and caps that cut them off. The other is ended by SIGTERM
and by kill -9 again and again: what each life needs must not grow from life to life. Every change is accounted for by
number (see `account`), so what is lost without an announcement and what is invented is counted from outside.
"""

from __future__ import annotations

import os
import signal
import ssl
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from penstock.log.reader import LogReader
from penstock.log.verify import verify
from penstock.model.position import Position
from tests.certificates import make_certificate
from tests.soak import agents, flatness
from tests.soak.account import Account, FileEnds
from tests.soak.agents import TOKEN, AgentProcess, Node
from tests.soak.flatness import Sample, Verdict
from tests.soak.floods import Flood
from tests.soak.readers import Habits, HttpReader, JsonFollower, LibraryReader, ListenerReader, Reader
from tests.soak.witness import Witness

_LOG_BYTES_MAX = 4 << 20
_KEPT_BYTES_MAX = 1 << 20
_LOOK_S = 0.1
# How long an agent may take to begin, the last readers once nothing is written any more, and what was to happen beyond
# its time.
_PATIENCE_S = 180.0


@dataclass(frozen=True)
class Plan:
    """How long, how much, how often. The bounds are for growth over the judged part of the run."""

    length_s: float
    rows_per_s: int
    burst_rows: int
    sample_s: float
    flood_every_s: float
    hold_s: float
    life_s: tuple[float, float]
    session_s: float
    away_s: float
    memory_kib: int
    descriptors: int
    threads: int
    disk_kib: int


def plan(minutes: float) -> Plan:
    """A soak of so many minutes. One of a few seconds sees everything happen, but hardly sees anything grow."""
    if minutes < 5:
        return Plan(
            length_s=minutes * 60,
            rows_per_s=800,
            burst_rows=1500,
            sample_s=0.2,
            flood_every_s=0.2,
            hold_s=1.0,
            life_s=(0.2, 1.5),
            session_s=2.0,
            away_s=2.0,
            memory_kib=48 << 10,
            descriptors=48,
            threads=16,
            disk_kib=8 << 10,
        )
    return Plan(
        length_s=minutes * 60,
        rows_per_s=160,
        burst_rows=1000,
        sample_s=2.0,
        flood_every_s=2.0,
        hold_s=4.0,
        life_s=(4.0, 24.0),
        session_s=20.0,
        away_s=120.0,
        memory_kib=4 << 10,
        descriptors=4,
        threads=2,
        disk_kib=1 << 10,
    )


@dataclass
class Outcome:
    """What a soak came to."""

    events: Counter[str]
    facts: dict[str, int]
    verdicts: dict[str, Verdict]
    points: dict[str, list[int]]
    broken: Counter[str]
    problems: list[str] = field(default_factory=list)


class Soak:
    """One run. `run` gives what came out of it, whatever that is, and leaves nothing running."""

    def __init__(self, root: Path, plan: Plan, seed: int) -> None:
        self._plan = plan
        self._random = Random(seed)
        # First floods and restarts end, then the writers, then the readers, when they have all.
        self._calming = threading.Event()
        self._ending = threading.Event()
        self._sampled = threading.Event()
        self._events: Counter[str] = Counter()
        self._series: dict[str, list[Sample]] = defaultdict(list)
        self._begun_s = time.monotonic()
        self._descriptors = agents.descriptors(os.getpid())
        self._failures: list[BaseException] = []
        certificate = make_certificate(root)
        token = root / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        common = {"token_file": str(token)}
        tls = {"tls_certificate_file": str(certificate.file), "tls_key_file": str(certificate.key_file)}
        sections: dict[str, dict[str, Any]] = {
            "log": {"file_bytes_max": "128KiB"},
            "retention": {"bytes_max": _LOG_BYTES_MAX, "keep_bytes_max": _KEPT_BYTES_MAX, "every_s": "1s"},
        }
        nodes = [Node(root / name, plan.rows_per_s, plan.burst_rows, seed) for name in ("steady", "restarted")]
        trust = ssl.create_default_context(cafile=str(certificate.file))
        open_port = {**common, **tls, "port": 0}
        self._steady = AgentProcess(
            nodes[0], "steady", {**sections, "http": open_port, "listener": open_port}, tls=trust
        )
        plain: dict[str, dict[str, Any]] = {
            "http": {**common, "port": 0},
            "listener": {**common, "path": str(nodes[1].root / "socket")},
        }
        self._restarted = AgentProcess(nodes[1], "restarted", {**sections, **plain}, tls=None)
        self._ends = {"steady": FileEnds(), "restarted": FileEnds()}
        self._witnesses = {one.name: Witness(one.log, one.node.root / "witness") for one in self._agents()}
        self._readers = [*self._steady_readers(), *self._restarted_readers()]
        self._flood = Flood(self._steady, plan.flood_every_s, plan.hold_s, seed, self._calming)

    def _agents(self) -> tuple[AgentProcess, AgentProcess]:
        return self._steady, self._restarted

    def _steady_readers(self) -> list[Reader]:
        session_s, away_s = self._plan.session_s, self._plan.away_s
        ends, agent, ending = self._ends["steady"], self._steady, self._ending
        kinds: list[tuple[str, type[Reader], Habits]] = [
            ("quick", LibraryReader, Habits()),
            ("slow", LibraryReader, Habits(rest_s=0.3, batches_per_commit=4)),
            ("stopping", LibraryReader, Habits(session_s=session_s, away_s=away_s)),
            ("rewound", LibraryReader, Habits(session_s=session_s, rewinds=True)),
            ("pushed", ListenerReader, Habits(session_s=session_s)),
            ("pushed-slow", ListenerReader, Habits(rest_s=0.3, batches_per_commit=4, session_s=3 * session_s)),
            ("looking-on", JsonFollower, Habits(session_s=session_s)),
            ("fetching", HttpReader, Habits()),
        ]
        return [kind(agent, Account(name, ends), habits, ending) for name, kind, habits in kinds]

    def _restarted_readers(self) -> list[Reader]:
        ends, agent, ending = self._ends["restarted"], self._restarted, self._ending
        kinds: list[tuple[str, type[Reader]]] = [
            ("quick", LibraryReader),
            ("pushed", ListenerReader),
            ("fetching", HttpReader),
        ]
        return [kind(agent, Account(name, ends), Habits(), ending) for name, kind in kinds]

    def run(self) -> Outcome:
        """The whole of it."""
        try:
            self._soak()
            codes = [agent.end() for agent in self._agents()]
        finally:
            for witness in self._witnesses.values():
                witness.close()
        self._read_news()
        return self._outcome(codes)

    def _soak(self) -> None:
        others = [
            threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)
            for name, work in (("soak-samples", self._sample), ("soak-restarts", self._restart))
        ]
        try:
            self._begin()
            self._begun_s = time.monotonic()
            for thread in (*others, *self._readers, self._flood):
                thread.start()
            self._wait()
            self._end(others)
        except BaseException:
            for agent in self._agents():
                agent.close()
            raise
        finally:
            self._let_go(others)

    def _begin(self) -> None:
        """Start the agents, and the writers when every reader is subscribed: who is not yet is promised nothing."""
        for agent in self._agents():
            self._witnesses[agent.name].start()
            agent.node.begin()
            agent.start()
        for agent in self._agents():
            _wait_until(agent.has_log, _PATIENCE_S)
        for reader in self._readers:
            reader.subscribe()
        for agent in self._agents():
            agent.node.start()

    def _wait(self) -> None:
        """Until the time is over and everything has happened at least once, or something failed."""
        end = self._begun_s + self._plan.length_s
        while time.monotonic() < end + _PATIENCE_S and not self._failed():
            if time.monotonic() >= end and self._has_happened():
                return
            self._calming.wait(_LOOK_S)

    def _has_happened(self) -> bool:
        counted = self._counted()
        return all(counted[name] for name in ("kill -9", "SIGTERM", "stops", "rewinds", "losses told", "floods"))

    def _counted(self) -> Counter[str]:
        events: Counter[str] = Counter()
        for counted in (self._events, self._flood.events, *(reader.events for reader in self._readers)):
            # Other threads go on counting meanwhile; a copy is made in one go.
            events.update(counted.copy())
        return events

    def _failed(self) -> list[BaseException]:
        failures = [*(reader.failure for reader in self._readers), self._flood.failure, *self._failures]
        return [failure for failure in failures if failure is not None]

    def _end(self, others: Iterable[threading.Thread]) -> None:
        """Let floods and restarts end, then the writers, then every reader with all that was written."""
        self._calming.set()
        self._flood.join(60)
        _wait_until(lambda: not any(thread.is_alive() and thread.name == "soak-restarts" for thread in others), 120)
        self._sampled.set()
        for agent in self._agents():
            agent.node.end()
        self._ending.set()
        deadline = time.monotonic() + _PATIENCE_S
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))

    def _let_go(self, others: Iterable[threading.Thread]) -> None:
        """Whatever came before, no thread of ours goes on, and no process if something failed."""
        for event in (self._calming, self._ending, self._sampled):
            event.set()
        for reader in self._readers:
            reader.abandon.set()
        for thread in (*others, *self._readers, self._flood):
            if thread.ident is not None:
                thread.join(60)
        for agent in self._agents():
            agent.node.close()
        if failed := self._failed():
            for agent in self._agents():
                agent.close()
            raise failed[0]

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - `run` raises it.
            self._failures.append(error)

    # Restarts.

    def _restart(self) -> None:
        agent = self._restarted
        while not self._calming.wait(self._random.uniform(*self._plan.life_s)):
            self._look_at("restarted agent, private memory before its end, KiB", agents.private_kib(agent.pid))
            number = signal.SIGKILL if self._events["kill -9"] <= self._events["SIGTERM"] else signal.SIGTERM
            code = agent.end(number)
            if number == signal.SIGTERM:
                assert code == 0, f"the agent ended with {code}"
            self._events["kill -9" if number == signal.SIGKILL else "SIGTERM"] += 1
            agent.start()

    # Samples.

    def _look_at(self, name: str, value: float) -> None:
        self._series[name].append(Sample(time.monotonic() - self._begun_s, value))

    def _sample(self) -> None:
        pid = self._steady.pid
        while not self._sampled.wait(self._plan.sample_s):
            self._look_at("steady agent, private memory, KiB", agents.private_kib(pid))
            self._look_at("steady agent, resident memory, KiB", agents.resident_kib(pid))
            self._look_at("steady agent, descriptors", agents.descriptors(pid))
            self._look_at("steady agent, threads", agents.threads(pid))
            self._look_at("readers' process, private memory, KiB", agents.private_kib(os.getpid()))
            for agent in self._agents():
                self._look_at(f"{agent.name} agent, disk of its logs, KiB", agents.disk_kib(agent.data))
                raw = agents.disk_kib(agent.node.cdc_raw, agent.node.root / "commitlog")
                self._look_at(f"{agent.name} agent, disk of the commit log, KiB", raw)
            self._read_news()

    def _read_news(self) -> None:
        """What the agents announced as cut, for the accounts of those whom it concerns."""
        accounts = {(reader.agent.name, reader.account.name): reader.account for reader in self._readers}
        for name, witness in self._witnesses.items():
            for position, number in witness.news():
                self._ends[name].note(position, number)
        for agent in self._agents():
            for line in agent.news():
                if line.get("event") != "changes lost":
                    continue
                account = accounts[agent.name, line["subscription"]]
                places = (Position.parse(line[name]) for name in ("after", "through"))
                account.announce(*places, cut=line["changes"])
        for account in accounts.values():
            account.settle()

    # The judgement.

    def _bound(self, name: str) -> float:
        plan = self._plan
        if "descriptors" in name:
            return plan.descriptors
        if "threads" in name:
            return plan.threads
        return plan.disk_kib if "disk" in name else plan.memory_kib

    def _outcome(self, codes: list[int]) -> Outcome:
        series = {name: found for name, found in self._series.items() if len(found) >= flatness.SAMPLES_MIN}
        verdicts = {name: flatness.judge(found, self._bound(name)) for name, found in series.items()}
        problems = [f"{name} rises: {verdict}" for name, verdict in verdicts.items() if not verdict.flat]
        broken = Counter({"series that rise": len(problems)})
        for reader in self._readers:
            found = self._judge(reader)
            broken.update(found)
            problems += [f"{reader.agent.name} {reader.account.name}: {count} {what}" for what, count in found.items()]
        for agent, code in zip(self._agents(), codes, strict=True):
            with LogReader(str(agent.log)) as reader_of_log:
                if code or not verify(reader_of_log).sound:
                    broken["agents that ended badly"] += 1
                    problems.append(f"{agent.name}: ended with {code}, or its log is not sound")
        left = agents.descriptors(os.getpid()) - self._descriptors
        if left > 0:
            broken["descriptors that readers left open"] += left
            problems.append(f"{left} descriptors of the readers are still open")
        accounts = [reader.account for reader in self._readers]
        facts = {
            "seconds": int(self._plan.length_s),
            "changes written": sum(agent.node.written for agent in self._agents()),
            "changes received": sum(account.received for account in accounts),
            "changes cut by retention and announced": sum(account.missing for account in accounts),
            "changes that came again after a rewind or a break": sum(account.repeated for account in accounts),
        }
        points = {name: _thinned(found) for name, found in self._series.items()}
        return Outcome(self._counted(), facts, verdicts, points, +broken, problems)

    def _judge(self, reader: Reader) -> Counter[str]:
        account = reader.account
        found = Counter(account.broken)
        found["announcements that nobody can place"] = 0 if account.settle() else 1
        if not isinstance(reader, JsonFollower):
            found["lost"] += max(0, reader.agent.node.written - (account.next or 0))
        found["lost"] += len(account.unannounced())
        found["places that were never committed"] = len(account.strange_places())
        if not reader.habits.rewinds and account.missing > account.cut and not isinstance(reader, JsonFollower):
            found["changes cut beyond what the agent counted"] = account.missing - account.cut
        return +found


def _thinned(samples: list[Sample], points: int = 40) -> list[int]:
    """A few of the values, from the first to the last."""
    step = max(1, len(samples) // points)
    return [round(sample.value) for sample in samples[::step]]


def _wait_until(done: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    looking = threading.Event()
    while not done():
        assert time.monotonic() < deadline, "it took too long"
        looking.wait(_LOOK_S)
