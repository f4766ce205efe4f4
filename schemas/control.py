"""What a client may tell a server to do: load models, change the settings of traces and of the log.

Plain values, as every dialect that has such operations means them; what is allowed is decided where an
operation is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ModelControl:
    """What a load or an unload asks beside the model's name.

    ``repository`` names one of the server's repositories, empty for any. ``config`` is a serialized
    ``inference.ModelConfig`` to use in place of the model's own file, None for that file. ``files`` are
    the model's files by their path in the model's folder, in place of all that the folder holds.
    ``dependents``: unload what only this model needs, too. ``served``: it is an error where the model is not
    served, as KServe and MLServer have it for an unload.
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
