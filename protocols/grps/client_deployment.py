"""An upstream's models, from the two configuration files in its metadata, as YAML.

There is no other list of models and no signature: our configuration declares it. Scalars are read as text,
because a version such as ``1.10`` is not a number.
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
"""The signature of a model without one."""

_FAST_LOADER: type[Any] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""Ten times as fast, if PyYAML was built with libyaml."""

_DEEPEST = 1000
"""The nesting limit of the fast loader, which recurses on the C stack: 200,000 brackets end the process."""


@dataclass(frozen=True, slots=True)
class DeployedModel:
    """One entry of ``models``; ``key`` is its name in requests."""

    name: str
    version: str
    kind: str

    @property
    def key(self) -> str:
        """Name and version as one."""
        return f"{self.name}-{self.version}" if self.version else self.name


def read_models(text: str) -> tuple[DeployedModel, ...]:
    """The models of a deployment, in order. Raises BAD_UPSTREAM for text that is not YAML or has no list of
    models."""
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
    """The models by their names in requests."""
    return tuple([ModelStatus(model.key) for model in models])


def metadata(models: tuple[DeployedModel, ...], model: ModelRef) -> ModelMetadata:
    """The metadata of ``model``, by name, by ``name-version``, or without a name for the server's default.
    Raises NOT_FOUND."""
    found = [each for each in models if model.name in (each.name, each.key) or not model.name]
    if model.version:
        found = [each for each in found if each.version == model.version]
    if not found:
        raise InferenceError(
            ErrorCode.NOT_FOUND, f"the upstream has no model '{joined(model.name, model.version)}'"
        )
    # the default is unknown, and may have several versions
    versions = tuple([each.version for each in found]) if model.name else ()
    return ModelMetadata(model.name, UNKNOWN, versions, found[0].kind if model.name else "")


def joined(name: str, version: str) -> str:
    """The name of a model in a request: ``name-version``; the name alone without a version, or if it ends
    with the version."""
    if not version or name.endswith(f"-{version}"):
        return name
    if not name:
        raise unrepresentable(
            f"version '{version}' was requested of a grps server's default model, which has no versions"
        )
    return f"{name}-{version}"


_MEMBERS = ("name", "version", "inferer_type")


def _is_shallow(text: str) -> bool:
    """Whether ``text`` cannot nest deeper than :data:`_DEEPEST`: every second level of a block is indented
    further, and a level outside of blocks has a bracket."""
    longest = max(map(len, text.split("\n")))
    return 2 * longest + text.count("[") + text.count("{") <= _DEEPEST


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key, "")
    return value if isinstance(value, str) else ""


def _unusable(why: str) -> InferenceError:
    return bad_upstream(f"the upstream's metadata is not usable: {why}")
