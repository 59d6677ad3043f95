"""Makes docs/pictures/demo.svg: the live view of a real run of the demo, at a moment when a node is down.

`python scripts/demo_picture.py` runs the demo for a few seconds in a directory of its own and writes the picture.
"""

from __future__ import annotations

import io
import tempfile
import threading
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import TerminalTheme

from penstock.cli.demo_run import Plan, run
from penstock.cli.live_view import Figures, View

PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "demo.svg"
WIDTH, HEIGHT = 80, 24
# A dark terminal that reads well on a light and on a dark page.
THEME = TerminalTheme(
    background=(20, 29, 36),
    foreground=(205, 216, 223),
    normal=[
        (40, 52, 61),
        (229, 115, 115),
        (129, 199, 132),
        (224, 175, 90),
        (100, 160, 220),
        (180, 140, 210),
        (88, 180, 209),
        (205, 216, 223),
    ],
)


def main() -> None:
    """Run, watch, and keep the first view in which a node has been down for a moment."""
    kept: list[str] = []
    stopped = threading.Event()
    seen_down = 0

    def view(figures: Figures) -> None:
        nonlocal seen_down
        seen_down += not all(node.up for node in figures.nodes)
        if seen_down == 4 and not kept:
            shown = figures.directory
            figures.directory = "demo"
            kept.append(drawn(figures))
            figures.directory = shown
            stopped.set()

    with tempfile.TemporaryDirectory() as directory:
        run(Plan(directory, {"dc1": 3, "dc2": 2}, seed=1, paced=True), stopped, view)
    PICTURE.write_text(kept[0], encoding="utf-8")


def drawn(figures: Figures) -> str:
    """The view as SVG, in whatever monospaced font the reader has: the picture fetches nothing."""
    console = Console(
        record=True,
        width=WIDTH,
        height=HEIGHT,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(View(figures))
    start, end = CONSOLE_SVG_FORMAT.index("@font-face"), CONSOLE_SVG_FORMAT.rindex("@font-face")
    end = CONSOLE_SVG_FORMAT.index("}}", end) + 2
    form = CONSOLE_SVG_FORMAT[:start] + CONSOLE_SVG_FORMAT[end:]
    form = form.replace("Fira Code, monospace", "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace")
    return console.export_svg(title="make run", theme=THEME, code_format=form)


if __name__ == "__main__":
    main()
