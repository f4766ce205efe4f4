"""Rewrites the tables of docs/configuration.md from the schema; what stands between them stays."""

from __future__ import annotations

import argparse
import re
import sys
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic.fields import FieldInfo

from interlingua.protocols.section import Section
from interlingua.schemas import Datatype
from interlingua.translator.config.sections import meanings, sections

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_SIMPLE = {str: "text", bool: "true, false", int: "integer", float: "number", Datatype: "datatype"}


def table(section: type[Section]) -> str:
    """A section's options as a Markdown table."""
    rows = ["| option | type | default | |", "|---|---|---|---|"]
    known = meanings(section)
    for name, field in section.model_fields.items():
        rows.append(f"| `{name}` | {_type(field.annotation)} | {_default(field)} | {known[name]} |")
    return "\n".join(rows) + "\n"


def rendered(text: str) -> str:
    """``text`` with every table as the schema has it now. Raises ``KeyError`` for an unknown one."""
    known = sections()
    return _TABLE.sub(lambda found: found[1] + "\n" + table(known[found[2]]) + "\n" + found[3], text)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if default is None or isinstance(default, Section):
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, str):
        return f"`{default}`" if default and default != "*" else f'`"{default}"`'
    if isinstance(default, dict):
        return "`{" + ", ".join(f"{key}: {value}" for key, value in default.items()) + "}`"
    if isinstance(default, tuple):
        return "`[" + ", ".join(f'"{entry}"' for entry in default) + "]`"
    return f"`{default}`"


def _type(annotation: Any) -> str:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _type(inner[0])
    if origin is Literal:
        return ", ".join(f"`{word}`" for word in inner)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_type(kind) for kind in inner if kind is not type(None))
    if origin is tuple:
        return f"list of {_type(inner[0])}"
    if origin is dict:
        return f"mapping of {_type(inner[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Section):
        name = annotation.__name__.removesuffix("Options").lower()
        return f"[{name}](#{name})"
    return _SIMPLE[annotation]


def main() -> int:
    """Rewrite the page, or with ``--check`` say whether that would change it (exit code 1)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where the page is stale")
    check = parser.parse_args().check
    before = PAGE.read_text(encoding="utf-8")
    after = rendered(before)
    if check:
        return int(before != after)
    PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
