"""Makes docs/reference/settings.md from the settings model, so that the page cannot drift from the code.

`python scripts/settings_page.py` prints the page, `--write` writes it. A unit test compares the two.
"""

from __future__ import annotations

import sys
import types
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from penstock.settings import Section, Settings

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "settings.md"
_HEAD = """# Settings

<!-- Made by scripts/settings_page.py from src/penstock/settings; `make docs` writes it. -->

Settings come from a TOML file and from environment variables; a variable wins over the file. `codec` of section `log`
is

```toml
[log]
codec = "zstandard"
```

in the file, and `PENSTOCK_LOG__CODEC=zstandard` in the environment. A variable that is empty counts as not set. An
unknown name is refused, with the file or variable it stands in and the nearest name that exists:

```
penstock: unknown setting log.codek; did you mean log.codec? (file penstock.toml)
```

Any value may be a reference, so that no secret need stand in the file: `"${file:/etc/penstock/kafka-password}"` is the
content of a file, `"${env:KAFKA_PASSWORD}"` that of a variable, `"${command:pass show kafka}"` what a program prints,
without the line break at its end. A file that every user of the machine can read is warned about. Whoever may write
this file can have commands run and code loaded: keep it writable by the operator alone.

A size or a time may be written with its unit, in quotation marks in the file: `"64KiB"`, `"10GiB"` (also `k`, `m`, `g`;
`kB` and `MB` are powers of 1000), `"500ms"`, `"5s"`, `"10m"`, `"12h"`, `"7d"`. A bare number is in the unit that the
setting's name has: `bytes`, `s`, `ms` or `hours`. `"none"` stands for no value where none is possible.

In a table of settings that are handed on, and in tables by pattern, names with points need no quotation marks, and
neither do numbers: `spark.driver.memory = "2g"` and `filters.shop.orders = "id > 1"`. In the environment, a list has
commas between its parts or is a JSON list, and a table is a JSON object:
`PENSTOCK_KAFKA__PRODUCER='{"linger.ms": 20}'`. A variable takes the place of the whole list or table.

`penstock config show CONFIG` prints the effective settings and where each comes from; `penstock config check CONFIG`
says whether what they name can start.
"""
_FUNCTIONS = """
```toml
[functions]
big = "shop_filters:is_big_order"
```

lets a filter say `WHERE big(total) = true`. The module is imported from where Python finds it; a statement can never
name one. From the environment, the name is taken in lower case: `PENSTOCK_FUNCTIONS__BIG=shop_filters:is_big_order`.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for name, field in Settings.model_fields.items():
        group = field.annotation
        parts.append(f"\n## `{name}`\n\n{field.description}\n")
        if isinstance(group, type) and issubclass(group, Section):
            parts.append("\n| setting | type | default | meaning |\n| --- | --- | --- | --- |\n")
            for key, member in group.model_fields.items():
                parts.append(_row(key, member))
                parts += [_row(f"{key}.NAME.{inner}", one) for inner, one in _inner(member.annotation).items()]
        else:
            parts.append(_FUNCTIONS)
    return "".join(parts)


def _row(name: str, field: FieldInfo) -> str:
    assert field.description, f"setting {name} has no description"
    limits = [f"≥ {m.ge}" for m in field.metadata if hasattr(m, "ge")]
    limits += [f"> {m.gt}" for m in field.metadata if hasattr(m, "gt")]
    limits += [f"≤ {m.le}" for m in field.metadata if hasattr(m, "le")]
    kind = ", ".join([_kind(field.annotation), *limits])
    return f"| `{name}` | {kind} | {_value(field.default)} | {' '.join(field.description.split())} |\n"


def _inner(annotation: Any) -> dict[str, FieldInfo]:
    """The fields of the sections that a table holds by names that the user chooses."""
    if get_origin(annotation) is Annotated:
        return _inner(get_args(annotation)[0])
    held = get_args(annotation)[1] if get_origin(annotation) is dict else None
    return held.model_fields if isinstance(held, type) and issubclass(held, Section) else {}


def _kind(annotation: Any) -> str:
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(_kind(part) for part in get_args(annotation) if part is not type(None))
    if get_origin(annotation) is Annotated:
        return _kind(get_args(annotation)[0])
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " · ".join(f"`{member.value}`" for member in annotation)
    if get_origin(annotation) is dict:
        return "table"
    if get_origin(annotation) is tuple:
        return "list of texts"
    return {
        int: "whole number",
        str: "text",
        bool: "true or false",
        Path: "path",
        float: "number",
        SecretStr: "secret text",
    }[annotation]


def _value(default: object) -> str:
    if default is None:
        return "none"
    if isinstance(default, tuple):
        return ", ".join(f"`{part}`" for part in default) or "empty"
    if default is PydanticUndefined or default == "":
        return "empty"
    return f"`{default.value}`" if isinstance(default, Enum) else f"`{default}`"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
