"""Arguments of control operations: loads of models, settings of traces and of the log. The operations check
them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class VersionPolicy:
    """The served versions of a model folder: the ``latest`` so many (0: all), or the ``specific`` ones."""

    latest: int = 1
    specific: tuple[int, ...] = ()

    def choose(self, available: Iterable[int]) -> tuple[int, ...]:
        """The served versions among ``available``, ascending."""
        if self.specific:
            return tuple(sorted(set(available) & set(self.specific)))
        return tuple(sorted(available)[-self.latest :])


@dataclass(frozen=True, slots=True)
class ModelControl:
    """The options of a load or an unload.

    ``repository`` names one of the server's repositories, empty for any. ``config`` is a serialized
    ``inference.ModelConfig`` that replaces the model's own file. ``files`` replace the content of the model's
    folder, by path. ``dependents``: also unload models that only this one needs. ``served``: a model that is
    not served is an error, as for an unload on KServe and MLServer. ``versions`` override the policy of the
    model's configuration.
    """

    repository: str = ""
    config: bytes | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    dependents: bool = False
    served: bool = False
    versions: VersionPolicy | None = None


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model in the list of all that clients want to be served: its folder, an absolute path, and its
    versions, by default those of its configuration."""

    name: str
    path: str
    versions: VersionPolicy | None = None


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """Which models an index lists: those of one ``repository`` (empty: all), the ``ready`` versions alone."""

    repository: str = ""
    ready: bool = False


TraceSettings = Mapping[str, tuple[str, ...]]
"""The settings of traces by name; one without a value is an empty tuple."""

LogSettings = Mapping[str, bool | int | str]
"""The settings of the log by name."""
