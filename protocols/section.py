"""The base types of the configuration schema, for the program's own sections and for those of dialects.

The sentence under an option is its documentation. Units are part of option names (``_secs``, ``_bytes``).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, model_validator

Text = Annotated[str, Field(min_length=1)]
Seconds = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(gt=0)]


class Section(BaseModel):
    """A mapping with a fixed set of keys. ``planned`` keys are refused as not available yet."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=()
    )
    planned: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _without_empty_keys(cls, data: Any) -> Any:
        """Treat a known key without a value as absent, as when its entries are commented out."""
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None or key not in cls.model_fields}


class PathOwners(Protocol):
    """The validation context that the configuration passes to its sections."""

    def owner(self, path: str) -> str | None:
        """The dialect that owns ``path`` on a shared HTTP listener."""


def _unowned(path: str, info: ValidationInfo) -> str:
    owners: PathOwners | None = info.context
    owner = owners.owner(path) if path and owners is not None else None
    if owner is not None:
        raise ValueError(f"'{path}' belongs to dialect '{owner}'")
    return path


UnownedPath = Annotated[str, AfterValidator(_unowned)]
"""A path that no dialect owns."""
