"""The live view of a pipeline: its status in, a picture for the terminal out.

Everything fits a terminal of 80 by 24: the busiest tables are shown and the others counted, and what is wrong comes
before what goes well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.cli import output
from penstock.pipeline.status import RUNS, PipelineStatus
from penstock.settings import Settings
from penstock.telemetry import Notices

# Troubles that are shown however many tables there are, and tables however many troubles.
_TROUBLES_LEAST = 3
_TABLES_LEAST = 3


@dataclass(frozen=True, slots=True)
class About:
    """What does not change while a pipeline runs: with what it runs, and where it can be asked."""

    name: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    logs: tuple[str, ...]
    agents: tuple[str, ...]
    sinks: tuple[str, ...]
    checkpoint: str
    master: str
    http: str | None
    stop_s: float

    @classmethod
    def of(cls, settings: Settings, http: str | None) -> About:
        found = settings.pipeline
        return cls(
            name=found.name,
            include=tuple(found.include),
            exclude=tuple(found.exclude),
            logs=tuple(found.logs),
            agents=tuple(found.agents),
            sinks=tuple(found.sinks),
            checkpoint=str(found.checkpoint_directory),
            master=found.master,
            http=http,
            stop_s=found.stop_s,
        )

    def facts(self) -> dict[str, object]:
        """The same for a log event; what there is none of is left out."""
        facts: Mapping[str, object] = {
            "tables": self.include,
            "tables_left_out": self.exclude,
            "logs": self.logs,
            "agents": self.agents,
            "sinks": self.sinks,
            "checkpoint": self.checkpoint,
            "master": self.master,
            "http": self.http,
        }
        return {name: list(fact) if isinstance(fact, tuple) else fact for name, fact in facts.items() if fact}


class PipelineView:
    """The whole view, for a terminal of any size."""

    def __init__(self, about: About, status: PipelineStatus, notices: Notices, *, ending: bool) -> None:
        self._about = about
        self._status = status
        self._notices = notices
        self._ending = ending

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = options.height or console.size.height
        inner = options.update(width=max(1, options.max_width - 4), height=None)
        fixed: list[RenderableType] = [self._state(), self._path(), *self._sinks(), *self._warnings()]
        # What is left beside these, the frame, the tables' heading and a blank line.
        left = height - 4 - sum(len(console.render_lines(part, inner, pad=False)) for part in fixed)
        wrong = self._troubles(min(len(self._status.troubles), max(_TROUBLES_LEAST, left - _TABLES_LEAST)))
        left -= sum(len(console.render_lines(part, inner, pad=False)) for part in wrong)
        keys = "Ctrl-C ends it at once, as a crash would" if self._ending else "Ctrl-C ends it in good order"
        yield Panel(
            Group(*fixed, *wrong, Text(), self._tables(max(_TABLES_LEAST, left))),
            title=f"[bold]penstock pipeline[/] {self._about.name}",
            subtitle=f"[dim]{keys}[/]",
            border_style="yellow" if self._ending else "cyan",
            padding=(0, 1),
            height=options.height,
        )

    def _state(self) -> Text:
        status = self._status
        text = Text()
        text.append(f"{status.records:,}", "bold green")
        text.append(f" records of {status.copies:,} copies   ")
        if self._ending:
            text.append(f"ending: {self._stage()}", "bold yellow")
        elif status.waiting:
            text.append(output.plain(f"waiting: {status.waiting}"), "yellow")
        elif status.stage != RUNS:
            text.append(status.stage, "bold")
        elif status.batches:
            text.append(f"batch {status.batch}, {status.batch_ms:,.0f} ms")
        else:
            text.append("no batch yet", "dim")
        return text

    def _stage(self) -> str:
        if self._status.stage != RUNS:
            return self._status.stage
        waiting = f" It waits: {output.plain(self._status.waiting)}" if self._status.waiting else ""
        return f"the batch under way is finished, within {self._about.stop_s:g} s …{waiting}"

    def _path(self) -> Text:
        about, status = self._about, self._status
        text = Text(overflow="fold")
        places = (("log place", about.logs), ("agent", about.agents))
        froms = [output.count(len(names), noun) for noun, names in places if names]
        text.append("from ", "dim").append(" and ".join(froms) or "nothing")
        text.append("   tables ", "dim").append(", ".join(about.include))
        if about.exclude:
            text.append(" without ", "dim").append(", ".join(about.exclude))
        text.append("   state ", "dim")
        text.append(f"{output.count(status.state_rows, 'row')}, {output.size(status.state_bytes)}")
        text.append("\ncheckpoint ", "dim").append(about.checkpoint)
        text.append("\nHTTP ", "dim").append(about.http or "none: pipeline.http_port is not set")
        return text

    def _sinks(self) -> list[Text]:
        lines = []
        for name in dict.fromkeys((*self._about.sinks, *self._status.sinks)):
            sink = self._status.sinks.get(name)
            text = Text("to ", "dim").append(name, "not dim")
            if sink is not None:
                text.append(f"   {output.count(sink.records, 'record')}, {output.size(sink.bytes)}", "not dim")
                if sink.dead:
                    text.append(f"   {output.count(sink.dead, 'dead letter')}", "red")
                if sink.left_out:
                    text.append(f"   without {output.count(sum(sink.left_out.values()), 'column')}", "yellow")
                if sink.down_s:
                    text.append(f"   away for {sink.down_s:,.0f} s", "yellow")
            lines.append(text)
        return lines

    def _warnings(self) -> list[Text]:
        if not self._notices.count:
            return []
        text = f"{output.count(self._notices.count, 'warning')} in the log, the last: {self._notices.last}"
        return [Text(output.plain(text), "yellow", no_wrap=True, overflow="ellipsis")]

    def _troubles(self, shown: int) -> list[Text]:
        found = list(self._status.troubles.items())
        more = len(found) - shown
        if more > 0:
            found = found[: shown - 1]
        lines = [
            Text(output.plain(f"{name} is in trouble: {one.reason}"), "red", overflow="fold") for name, one in found
        ]
        return [*lines, Text(f"… and {more + 1} more tables in trouble", "red")] if more > 0 else lines

    def _tables(self, rows: int) -> Table:
        table = Table(box=None, expand=True, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        table.add_column("table", no_wrap=True)
        for name in ("copies read", "records", "per second", "lag"):
            table.add_column(name, justify="right", no_wrap=True)
        busiest = sorted(self._status.tables.items(), key=lambda item: (-item[1].rate, item[0]))
        shown = busiest if len(busiest) <= rows else busiest[: rows - 1]
        for name, one in shown:
            lag = "-" if one.lag_ms is None else f"{one.lag_ms:,.0f} ms"
            table.add_row(output.plain(name), f"{one.copies:,}", f"{one.records:,}", f"{one.rate:,.0f}", lag)
        rest = [one for _, one in busiest[len(shown) :]]
        if rest:
            copies, records = sum(one.copies for one in rest), sum(one.records for one in rest)
            rate = sum(one.rate for one in rest)
            table.add_row(f"… and {len(rest)} more", f"{copies:,}", f"{records:,}", f"{rate:,.0f}", "")
        return table
