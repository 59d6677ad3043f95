"""The live view of the demo: figures in, a picture for the terminal out. It measures nothing itself.

Everything fits a terminal of 80 by 24: nodes that find no room are counted together, those that are down are shown
first, and of what has happened the newest is shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.cli import output

_SPARKS = "▁▂▃▄▅▆▇█"
HISTORY = 48
# Rows of nodes that are shown however small the terminal is, and lines of what has happened.
_NODES_LEAST = 3
_LINES_LEAST = 6


@dataclass(slots=True)
class NodeFigures:
    """One node of the cluster and its change logs, one for each table."""

    name: str
    data_centre: str
    up: bool = True
    changes: int = 0
    bytes: int = 0
    files: int = 0
    rate: float = 0.0


@dataclass(slots=True)
class ReaderFigures:
    """One subscription: how much it was given, how far it is behind, how old the newest change was on arrival."""

    name: str
    table: str
    node: str
    changes: int = 0
    behind: int = 0
    lag_ms: float = 0.0
    rate: float = 0.0


@dataclass(slots=True)
class Figures:
    """Everything that the view shows."""

    elapsed_s: float = 0.0
    goal: int | None = None
    written: int = 0
    acknowledged: int = 0
    refused: int = 0
    rate: float = 0.0
    directory: str = ""
    # How far the pipeline into the Delta tables is; empty when there is none.
    pipeline: str = ""
    nodes: list[NodeFigures] = field(default_factory=list)
    readers: list[ReaderFigures] = field(default_factory=list)
    events: deque[str] = field(default_factory=lambda: deque(maxlen=16))
    history: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    # Once the load has ended: what is done about the end, step by step; the last one is under way.
    steps: list[str] = field(default_factory=list)

    def begin(self, step: str) -> None:
        """Begin the next step of the end: the one before is done."""
        self.steps.append(step)

    def tell(self, step: str) -> None:
        """Say more of the step that is under way."""
        self.steps[-1:] = [step]


class View:
    """The whole view, for a terminal of any size."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        figures = self._figures
        height = options.height or console.size.height
        inner = options.update(width=max(1, options.max_width - 4), height=None)
        readers, where = _readers(figures), _where(figures)
        # What is left beside these, the frame, the headline, the nodes' heading and two blank lines.
        left = height - 6 - sum(len(console.render_lines(part, inner, pad=False)) for part in (readers, where))
        nodes = _nodes(figures, max(_NODES_LEAST, left - _LINES_LEAST))
        happened = _happened(figures, max(1, left - nodes.row_count))
        yield Panel(
            Group(_headline(figures, inner.max_width), nodes, Text(), readers, Text(), where, *happened),
            title="[bold]penstock demo[/]",
            subtitle=f"[dim]{_keys(figures)}[/]",
            border_style="cyan",
            padding=(0, 1),
            height=options.height,
        )


def _keys(figures: Figures) -> str:
    if figures.steps:
        return "Ctrl-C ends it at once, and nothing is checked"
    return "Ctrl-C ends the load; then every write is checked"


def _headline(figures: Figures, width: int) -> Text:
    text = Text(no_wrap=True)
    text.append(f"{figures.acknowledged:,}", "bold green")
    text.append(f" of {figures.goal:,} writes" if figures.goal is not None else " writes acknowledged")
    text.append(f"  {figures.refused:,} refused", "yellow" if figures.refused else "dim")
    text.append(f"  {figures.rate:,.0f}/s ", "bold")
    time = f" {figures.elapsed_s:,.0f} s"
    text.append(_sparkline(list(figures.history)[-max(1, width - len(text) - len(time)) :]), "cyan")
    text.append(time, "dim")
    return text


def _table(left: Iterable[str], right: Iterable[str]) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _nodes(figures: Figures, rows: int) -> Table:
    table = _table(("node", "data centre", "state"), ("logged", "per second", "log size", "files"))
    nodes = figures.nodes
    if len(nodes) > rows:
        # Whatever is down is seen.
        nodes = sorted(nodes, key=lambda node: node.up)[: rows - 1]
    for node in nodes:
        state = Text("up", "green") if node.up else Text("down", "bold red")
        cells = (f"{node.changes:,}", f"{node.rate:,.0f}", output.size(node.bytes), str(node.files))
        table.add_row(node.name, node.data_centre, state, *cells, style="" if node.up else "dim")
    names = {node.name for node in nodes}
    rest = [node for node in figures.nodes if node.name not in names]
    if rest:
        down = sum(not node.up for node in rest)
        state = Text(f"{down} down", "bold red") if down else Text("up", "green")
        total = sum(node.changes for node in rest)
        rate, size, files = (sum(getattr(node, name) for node in rest) for name in ("rate", "bytes", "files"))
        table.add_row(f"{len(rest)} more", "", state, f"{total:,}", f"{rate:,.0f}", output.size(size), f"{files}")
    return table


def _readers(figures: Figures) -> Table:
    table = _table(("subscription", "table", "on node"), ("read", "per second", "behind", "age"))
    for reader in figures.readers:
        late = Text(f"{reader.behind:,}", "yellow" if reader.behind > reader.rate else "green")
        cells = (f"{reader.changes:,}", f"{reader.rate:,.0f}", late, f"{reader.lag_ms:,.1f} ms")
        table.add_row(reader.name, reader.table, reader.node, *cells)
    return table


def _where(figures: Figures) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    if figures.pipeline:
        table.add_row("pipeline", figures.pipeline)
    table.add_row("logs", Text(output.plain(figures.directory)))
    return table


def _happened(figures: Figures, lines: int) -> list[RenderableType]:
    """What has happened last; once the load has ended, the steps of the end."""
    if not figures.steps:
        return [_line(event, "dim") for event in list(figures.events)[-lines:]]
    *done, last = figures.steps[-lines:]
    return [*(_line(f"✓ {step}", "green") for step in done), _line(f"▸ {last}", "bold")]


def _line(text: str, style: str) -> Text:
    return Text(output.plain(text), style, no_wrap=True, overflow="ellipsis")


def _sparkline(history: list[float]) -> str:
    top = max(history, default=0.0)
    if top <= 0:
        return ""
    return "".join(_SPARKS[min(len(_SPARKS) - 1, int(value / top * (len(_SPARKS) - 1)))] for value in history)
