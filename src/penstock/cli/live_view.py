"""The live view of the demo: figures in, a picture for the terminal out. It measures nothing itself."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.cli import output

_SPARKS = "▁▂▃▄▅▆▇█"
HISTORY = 48


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
    events: deque[str] = field(default_factory=lambda: deque(maxlen=4))
    history: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))


def picture(figures: Figures) -> RenderableType:
    """The whole view."""
    return Panel(
        Group(_headline(figures), Text(), _nodes(figures), Text(), _readers(figures), Text(), _footer(figures)),
        title="[bold]penstock demo[/]",
        subtitle="[dim]Ctrl-C ends it and checks every write[/]",
        border_style="cyan",
        padding=(1, 2),
    )


def _headline(figures: Figures) -> Text:
    text = Text()
    text.append(f"{figures.acknowledged:,}", "bold green")
    text.append(" writes acknowledged")
    if figures.goal is not None:
        text.append(f" of {figures.goal:,}")
    text.append(f"   {figures.refused:,} refused", "yellow" if figures.refused else "dim")
    text.append(f"   {figures.rate:,.0f}/s  ", "bold")
    text.append(_sparkline(figures.history), "cyan")
    text.append(f"  {figures.elapsed_s:.0f} s", "dim")
    return text


def _nodes(figures: Figures) -> Table:
    table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False, header_style="bold")
    table.add_column("node")
    table.add_column("data centre")
    table.add_column("state")
    for name in ("changes logged", "per second", "log size", "files"):
        table.add_column(name, justify="right")
    for node in figures.nodes:
        state = Text("up", "green") if node.up else Text("down", "bold red")
        cells = (f"{node.changes:,}", f"{node.rate:,.0f}", output.size(node.bytes), str(node.files))
        table.add_row(node.name, node.data_centre, state, *cells, style="" if node.up else "dim")
    return table


def _readers(figures: Figures) -> Table:
    table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False, header_style="bold")
    table.add_column("subscription")
    table.add_column("table")
    table.add_column("on node")
    for name in ("changes read", "per second", "behind", "age on arrival"):
        table.add_column(name, justify="right")
    for reader in figures.readers:
        late = Text(f"{reader.behind:,}", "yellow" if reader.behind > reader.rate else "green")
        cells = (f"{reader.changes:,}", f"{reader.rate:,.0f}", late, f"{reader.lag_ms:,.1f} ms")
        table.add_row(reader.name, reader.table, reader.node, *cells)
    return table


def _footer(figures: Figures) -> Text:
    text = Text()
    for event in figures.events:
        text.append(f"{event}\n", "dim")
    if figures.pipeline:
        text.append("pipeline: ", "dim")
        text.append(f"{figures.pipeline}\n")
    text.append("logs: ", "dim")
    text.append(figures.directory)
    return text


def _sparkline(history: deque[float]) -> str:
    top = max(history, default=0.0)
    if top <= 0:
        return ""
    return "".join(_SPARKS[min(len(_SPARKS) - 1, int(value / top * (len(_SPARKS) - 1)))] for value in history)
