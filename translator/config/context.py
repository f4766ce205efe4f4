"""The validation context of an option: the features of this program, and the names that the file declares.

The names come from the raw document, so that validation finds a wrong reference even if the entry around it,
or its target, has errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interlingua.protocols.dialect import Binding


@dataclass(frozen=True, slots=True)
class Installation:
    """The features of the program: ``serves`` and ``calls`` have each dialect's transports as a listener and
    as an upstream's client, ``backends`` the engines for local models and whether each of them reads a file,
    ``prefixes`` the prefixes of each dialect's paths, ``devices`` the devices that models can run on,
    ``nameless`` each dialect's transports with one model per address. Listeners speak the ``unlisted``
    dialects only where they list them."""

    serves: Mapping[str, frozenset[str]]
    calls: Mapping[str, frozenset[str]]
    backends: Mapping[str, bool]
    prefixes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    devices: tuple[str, ...] = ("cpu",)
    nameless: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unlisted: frozenset[str] = frozenset()

    @classmethod
    def present(cls) -> Installation:
        from interlingua.protocols.registry import DIALECTS
        from interlingua.runtime.backends import BACKENDS
        from interlingua.runtime.backends.devices import devices

        def transports(of: Callable[[Binding], object]) -> Mapping[str, frozenset[str]]:
            return {
                name: frozenset(each.transport for each in dialect.bindings.values() if of(each))
                for name, dialect in DIALECTS.items()
            }

        return cls(
            serves=transports(lambda each: each.endpoints),
            calls=transports(lambda each: each.calls),
            backends={name: bool(backend.filenames or backend.deploys) for name, backend in BACKENDS.items()},
            prefixes={
                name: tuple(prefix for each in dialect.bindings.values() for prefix in each.prefixes)
                for name, dialect in DIALECTS.items()
            },
            devices=devices(),
            nameless=transports(lambda each: each.calls and not each.capability.many_models),
            unlisted=frozenset(name for name, dialect in DIALECTS.items() if not dialect.manifest.by_default),
        )


@dataclass(frozen=True, slots=True)
class ValidationContext:
    """The installation and the names that the document declares. ``models`` is None if a repository is
    unreadable. ``nameless`` are the upstreams whose requests name no model, with dialect and transport."""

    installation: Installation
    addresses: tuple[str, ...]
    listeners: tuple[str, ...]
    upstreams: tuple[str, ...]
    models: tuple[str, ...] | None
    nameless: Mapping[str, str] = field(default_factory=dict)

    def owner(self, path: str) -> str | None:
        """The dialect that owns ``path`` on an HTTP listener."""
        prefixes = self.installation.prefixes
        return next((name for name, owned in prefixes.items() if f"{path}/".startswith(owned)), None)

    @classmethod
    def of(cls, data: Any, installation: Installation) -> ValidationContext:
        """The context of every option in ``data``, a document before validation."""
        listeners = tuple(_texts(_entries(data, "listeners"), "listen"))
        admin = tuple(_texts([_section(data, "admin")], "listen"))
        return cls(
            installation,
            addresses=listeners + admin,
            listeners=listeners,
            upstreams=tuple(_section(data, "upstreams")),
            models=_models(data),
            nameless=dict(_nameless(data, installation)),
        )


def model_names(repository: str) -> list[str]:
    """The names of the models in a repository folder. Raises ``OSError``."""
    from interlingua.runtime.repository.model_folders import model_folders

    return list(model_folders(Path(repository)))


def _models(data: Any) -> tuple[str, ...] | None:
    names = dict.fromkeys(_section(data, "models"))
    for repository in _entries(data, "model_repository"):
        try:
            folders = model_names(repository["path"])
        except (OSError, KeyError, TypeError, ValueError):  # reported at its own line
            return None
        chosen = repository.get("load")
        names |= {name: None for name in folders if not isinstance(chosen, tuple) or name in chosen}
    return tuple(names)


def _nameless(data: Any, installation: Installation) -> Iterator[tuple[str, str]]:
    for name, upstream in _section(data, "upstreams").items():
        if isinstance(upstream, dict):
            dialect, transport = (str(upstream.get(key)) for key in ("dialect", "transport"))
            if transport in installation.nameless.get(dialect, ()):
                yield name, f"{dialect} over {transport}"


def _section(data: Any, key: str) -> dict[str, Any]:
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, dict) else {}


def _entries(data: Any, key: str) -> list[dict[str, Any]]:
    value = data.get(key) if isinstance(data, dict) else None
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, tuple) else []


def _texts(entries: list[dict[str, Any]], key: str) -> Iterator[str]:
    return (entry[key] for entry in entries if isinstance(entry.get(key), str))
