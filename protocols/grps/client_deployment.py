"""What an upstream says of its models: the two configuration files that it answers with, as YAML.

There is no other list of models, and no word on what they take and give: that is declared on our side. One
server writes the files as they are, the other anew; read as text, since a version such as ``1.10`` is no
number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    ModelMetadata,
    ModelRef,
    ModelStatus,
    Signature,
    bad_upstream,
    unrepresentable,
)

UNKNOWN = Signature((), ())
"""The signature of a model that does not tell it."""

_FAST_LOADER: type[Any] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""Ten times as fast, where PyYAML has been built with libyaml."""

_DEEPEST = 1000
"""How deep a document may nest for the fast loader, which recurses on the C stack: with 200,000 brackets it
ends the process."""


@dataclass(frozen=True, slots=True)
class DeployedModel:
    """One entry of ``models``. ``key`` is what requests call it: nothing but that."""

    name: str
    version: str
    kind: str

    @property
    def key(self) -> str:
        """Name and version as one."""
        return f"{self.name}-{self.version}" if self.version else self.name


def read_models(text: str) -> tuple[DeployedModel, ...]:
    """The models of a deployment, in their order.

    Raises BAD_UPSTREAM for what is no YAML, or has no list of models.
    """
    try:
        # both loaders give every scalar as the text that it is
        document = yaml.load(text, _FAST_LOADER if _is_shallow(text) else yaml.BaseLoader)  # noqa: S506
    except (yaml.YAMLError, UnicodeError, RecursionError) as fault:
        raise _unusable(f"not YAML: {str(fault).partition(chr(10))[0]}") from fault
    entries = document.get("models") if isinstance(document, Mapping) else None
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise _unusable("it has no list of models")
    return tuple([DeployedModel(*(_text(entry, key) for key in _MEMBERS)) for entry in entries])


def index(models: tuple[DeployedModel, ...]) -> tuple[ModelStatus, ...]:
    """The models by the names that requests call them."""
    return tuple([ModelStatus(model.key) for model in models])


def metadata(models: tuple[DeployedModel, ...], asked: ModelRef) -> ModelMetadata:
    """What is known of ``asked``, which may be called by its name alone, by name and version as one, or not
    at all where it is the server's default. Raises NOT_FOUND."""
    found = [model for model in models if asked.name in (model.name, model.key) or not asked.name]
    if asked.version:
        found = [model for model in found if model.version == asked.version]
    if not found:
        raise InferenceError(
            ErrorCode.NOT_FOUND, f"the upstream has no model '{joined(asked.name, asked.version)}'"
        )
    # of the default nobody says which it is, or whether it is one alone
    versions = tuple([model.version for model in found]) if asked.name else ()
    return ModelMetadata(asked.name, UNKNOWN, versions, found[0].kind if asked.name else "")


def joined(name: str, version: str) -> str:
    """What a request calls a model: ``name-version``; the name where no version is asked for, or where it
    ends with that already."""
    if not version or name.endswith(f"-{version}"):
        return name
    if not name:
        raise unrepresentable(
            f"version '{version}' was asked of a grps server's default model, which has no versions"
        )
    return f"{name}-{version}"


_MEMBERS = ("name", "version", "inferer_type")


def _is_shallow(text: str) -> bool:
    """Whether ``text`` cannot nest deeper than :data:`_DEEPEST`. Within a block every second level is further
    to the right, and outside of blocks a level has a bracket."""
    longest = max(map(len, text.split("\n")))
    return 2 * longest + text.count("[") + text.count("{") <= _DEEPEST


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key, "")
    return value if isinstance(value, str) else ""


def _unusable(why: str) -> InferenceError:
    return bad_upstream(f"the upstream's metadata is not usable: {why}")
