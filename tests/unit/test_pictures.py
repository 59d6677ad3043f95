"""The pictures stand alone, are shown somewhere, read well in both colour schemes, and the rooms are the real ones."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parent.parent.parent
PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
DRAWN = [picture for picture in PICTURES if picture.stem != "demo"]
SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: Path) -> list[tuple[float, str]]:
    """Every text of a picture from top to bottom, with its height."""
    found = [
        (float(text.get("y", "0")), "".join(text.itertext())) for text in ElementTree.parse(picture).iter(f"{SVG}text")
    ]
    return sorted(found)


def test_the_pictures_that_people_look_for_are_there() -> None:
    named = {"change-path", "data-path", "exactly-once", "merge", "retention", "rooms"}
    assert named <= {picture.stem for picture in PICTURES}


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.stem)
def test_a_picture_loads_nothing_and_is_shown_on_a_page(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    assert set(re.findall(r"""["'(](https?:[^"')]*)""", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(script|image|foreignObject)\b|@import|@font-face", text)
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    assert any(f"pictures/{picture.name})" in page.read_text(encoding="utf-8") for page in pages)


@pytest.mark.parametrize("picture", DRAWN, ids=lambda picture: picture.stem)
def test_every_colour_has_its_counterpart_for_the_dark(picture: Path) -> None:
    light, _, dark = picture.read_text(encoding="utf-8").partition("@media (prefers-color-scheme: dark)")
    coloured = {name for name, rule in re.findall(r"\.([\w-]+) \{([^}]*)\}", light) if "#" in rule}
    assert coloured == {name for name, rule in re.findall(r"\.([\w-]+) \{([^}]*)\}", dark) if "#" in rule}


@pytest.mark.parametrize("picture", DRAWN, ids=lambda picture: picture.stem)
def test_everything_stands_inside_the_picture(picture: Path) -> None:
    root = ElementTree.parse(picture).getroot()
    width, height = map(float, root.get("viewBox", "").split()[2:])
    for part in root.iter():
        if part.tag in {f"{SVG}rect", f"{SVG}text"}:
            right = float(part.get("x", "0")) + float(part.get("width", "0"))
            assert 0 <= right <= width, ElementTree.tostring(part)
            assert 0 <= float(part.get("y", "0")) + float(part.get("height", "0")) <= height


def test_the_rooms_are_the_layers_that_the_checks_hold() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "layers")
    drawn = [text for _, text in texts(ROOT / "docs" / "pictures" / "rooms.svg")]
    assert [text for text in drawn if text in layers] == layers
