"""The sections of the configuration file, for pages and editors: by name, with the meaning of each option."""

from __future__ import annotations

import ast
import inspect
import textwrap
import typing
from itertools import pairwise
from typing import Any

from interlingua.protocols.section import Section
from interlingua.translator.config.schema import schema


def sections(section: type[Section] | None = None) -> dict[str, type[Section]]:
    """Every section of the schema by class name, the whole file first."""
    section = section or schema()
    found = {section.__name__: section}
    for field in section.model_fields.values():
        for inner in _sections_in(field.annotation):
            found |= sections(inner)
    return found


def meanings(section: type[Section]) -> dict[str, str]:
    """The text of each option: its description, or the string literal under it in ``section`` or a base."""
    found = {name: field.description for name, field in section.model_fields.items() if field.description}
    for base in reversed(section.__mro__):
        if not issubclass(base, Section) or base.__module__ == schema.__module__:  # composed: has no source
            continue
        body = typing.cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]).body
        for option, text in pairwise(body):
            match option, text:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(str(meaning))):
                    found[name] = meaning
    return {name: " ".join(text.split()) for name, text in found.items()}


def _sections_in(annotation: Any) -> list[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [found for inner in typing.get_args(annotation) for found in _sections_in(inner)]
