"""Arguments of control operations: loads of models, settings of traces and of the log. The operations check
them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ModelControl:
    """The options of a load or an unload.

    ``repository`` names one of the server's repositories, empty for any. ``config`` is a serialized
    ``inference.ModelConfig`` that replaces the model's own file. ``files`` replace the content of the model's
    folder, by path. ``dependents``: also unload models that only this one needs. ``served``: a model that is
    not served is an error, as for an unload on KServe and MLServer.
    """

    repository: str = ""
    config: bytes | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    dependents: bool = False
    served: bool = False


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """Which models an index lists: those of one ``repository`` (empty: all), the ``ready`` versions alone."""

    repository: str = ""
    ready: bool = False


TraceSettings = Mapping[str, tuple[str, ...]]
"""The settings of traces by name; one without a value is an empty tuple."""

LogSettings = Mapping[str, bool | int | str]
"""The settings of the log by name."""
