"""The schema of the file as this program has it: ``options``, and the options of every registered dialect."""

from __future__ import annotations

import typing
from functools import lru_cache
from typing import Annotated, Any

from pydantic import Field, create_model

from interlingua.protocols.manifest import Manifest
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.section import Section
from interlingua.translator.config import options


def schema() -> type[options.Config]:
    """The section of the whole file. It is the same class until a dialect is registered."""
    return _composed(tuple((name, dialect.manifest) for name, dialect in DIALECTS.items()))


@lru_cache(maxsize=1)
def _composed(dialects: tuple[tuple[str, Manifest], ...]) -> type[options.Config]:
    # pydantic collects fields from the last base to the first: those of dialects come last
    bases: Any = [each.listener for _, each in reversed(dialects) if each.listener is not None]
    listener: Any = create_model(
        "ListenerOptions",
        __base__=(*bases, options.ListenerOptions),
        __doc__=options.ListenerOptions.__doc__,
        __module__=__name__,
    )
    fields: dict[str, Any] = {"listeners": (Annotated[tuple[listener, ...], Field(min_length=1)], ...)}
    for name, manifest in dialects:
        if manifest.section is not None:
            about = f"Options of {manifest.title or name}."
            fields[name] = manifest.section, Field(default_factory=manifest.section, description=about)
    return create_model(
        "Config", __base__=options.Config, __doc__=options.Config.__doc__, __module__=__name__, **fields
    )


def __getattr__(name: str) -> Any:
    """The composed classes by name: ``pickle`` looks up the class of a configuration here."""
    if name == "Config":
        return schema()
    if name == "ListenerOptions":
        return typing.get_args(schema().model_fields["listeners"].annotation)[0]
    raise AttributeError(name)


def section_at(path: tuple[str | int, ...]) -> type[Section]:
    """The section that the schema has at ``path`` of a document."""
    found: Any = schema()
    for part in path:
        if isinstance(found, type) and issubclass(found, Section):
            found = _plain(found.model_fields[str(part)].annotation)
        else:  # an entry of a list or of a mapping with free keys
            found = _plain(next(kind for kind in reversed(typing.get_args(found)) if kind is not Ellipsis))
    if not (isinstance(found, type) and issubclass(found, Section)):
        raise LookupError(path)
    return found


def _plain(annotation: Any) -> Any:
    """An annotation without its ``None`` and its metadata."""
    while typing.get_origin(annotation) is Annotated:
        annotation = typing.get_args(annotation)[0]
    kinds = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
    return _plain(kinds[0]) if type(None) in typing.get_args(annotation) else annotation
