"""Builds the documentation into a directory, and checks that no page of it loads anything from another host.

`python scripts/build_site.py site` builds; `make docs` does. The builder keeps a cache in `.cache` beside its
configuration, and empties that directory when it is told to build anew: the jars of Cassandra and others are in ours.
So it works on a copy elsewhere, and what it leaves there goes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).parent.parent
# What a page loads by itself, by its attribute. A link that somebody must follow is no load.
_LOADS = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "link": "href",
    "object": "data",
    "script": "src",
    "source": "src",
    "video": "src",
}
# Links of the head that name a page and load nothing.
_NAMES = {"alternate", "author", "canonical", "license", "next", "prev"}
# What makes the theme's script fetch more from elsewhere: diagrams, lightboxes, code that runs in the page.
_FETCHING = {"mermaid", "glightbox", "pyodide"}


class _Page(HTMLParser):
    """One page: what it loads, and what of it would make the script fetch more."""

    def __init__(self) -> None:
        super().__init__()
        self.foreign: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        loaded = given.get(_LOADS.get(tag, ""), "")
        if _is_foreign(loaded) and not (tag == "link" and set(given.get("rel", "").split()) <= _NAMES):
            self.foreign.append(loaded)
        self.foreign += [f'class "{name}"' for name in given.get("class", "").split() if name in _FETCHING]


def _is_foreign(address: str) -> bool:
    return address.startswith("//") or (":" in address.split("/", 1)[0] and not address.startswith("data:"))


def build(target: Path) -> None:
    """Build the site into a directory, which is replaced."""
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(ROOT / "docs", Path(scratch) / "docs")
        shutil.copy(ROOT / "mkdocs.yml", scratch)
        zensical = Path(sys.executable).parent / "zensical"
        subprocess.run([zensical, "build", "--strict"], cwd=scratch, check=True)  # noqa: S603 - words of ours
        if target.exists():
            shutil.rmtree(target)
        shutil.move(Path(scratch) / "site", target)


def loads(site: Path) -> list[str]:
    """What pages and style sheets of a site load from elsewhere, each with the file that does."""
    found = []
    for file in sorted(site.rglob("*.html")):
        page = _Page()
        page.feed(file.read_text(encoding="utf-8"))
        found += [f"{file.relative_to(site)}: {address}" for address in page.foreign]
    for file in sorted(site.rglob("*.css")):
        text = file.read_text(encoding="utf-8")
        found += [
            f"{file.relative_to(site)}: {part.split(')', 1)[0]}"
            for part in text.replace("@import", "url(").split("url(")[1:]
            if _is_foreign(part.strip("\"' "))
        ]
    return found


if __name__ == "__main__":
    build(Path(sys.argv[1]).absolute())
    if foreign := loads(Path(sys.argv[1])):
        sys.exit("pages load from elsewhere:\n" + "\n".join(foreign))
