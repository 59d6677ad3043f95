"""The documentation as it is built: every page is there, and none loads anything from another host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import build_site as builder

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("documentation") / "site"
    builder.build(target)
    return target


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    assert builder.loads(site) == []


def test_every_page_and_picture_is_built(site: Path) -> None:
    docs = ROOT / "docs"
    names = [
        str(page.relative_to(docs).with_suffix(".html")) for page in docs.rglob("*.md") if page.name != "README.md"
    ]
    names += [str(picture.relative_to(docs)) for picture in docs.rglob("*.svg")]
    assert [name for name in names if not (site / name).is_file()] == []


def test_links_to_a_place_in_a_page_lead_there(site: Path) -> None:
    anchors = {
        file: set(re.findall(r'\bid="([^"]+)"', file.read_text(encoding="utf-8"))) for file in site.rglob("*.html")
    }
    broken = []
    for file in anchors:
        for target in re.findall(r'href="([^":]*#[^"]+)"', file.read_text(encoding="utf-8")):
            page, _, place = target.partition("#")
            there = (file.parent / page).resolve() if page else file.resolve()
            if there in anchors and place not in anchors[there] and not place.startswith("__"):
                broken.append(f"{file.relative_to(site)}: {target}")
    assert sorted(set(broken)) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('<link rel="stylesheet" href="https://fonts.example/css">', ["https://fonts.example/css"]),
        ('<script src="//cdn.example/x.js"></script>', ["//cdn.example/x.js"]),
        ('<img src="http://example.org/x.png">', ["http://example.org/x.png"]),
        ('<div class="mermaid">graph</div>', ['class "mermaid"']),
        ('<a href="https://example.org">a link to follow</a><link rel="canonical" href="https://example.org">', []),
        ('<img src="data:image/png;base64,AA"><script src="../x.js"></script>', []),
    ],
)
def test_what_would_be_loaded_is_found(tmp_path: Path, text: str, found: list[str]) -> None:
    (tmp_path / "page.html").write_text(text)
    assert builder.loads(tmp_path) == [f"page.html: {one}" for one in found]


def test_style_sheets_are_looked_through(tmp_path: Path) -> None:
    (tmp_path / "x.css").write_text(
        "@font-face { src: url(https://fonts.example/a.woff2) } a { background: url(b.png) }"
    )
    assert builder.loads(tmp_path) == ["x.css: https://fonts.example/a.woff2"]
