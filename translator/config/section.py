"""What all sections of the schema share: strictness, common types, rules that several of them have."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from interlingua.translator.config import wording

Text = Annotated[str, Field(min_length=1)]
Seconds = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(gt=0)]
Transport = Literal["http", "grpc", "brpc", "tcp"]


def _parameter(value: Any) -> Any:
    if not isinstance(value, bool | int | float | str):
        raise ValueError(f"must be text, a number, true or false, not {wording.shown(value)}")
    return value


ParameterValue = Annotated[bool | int | float | str, BeforeValidator(_parameter)]
"""The value of a parameter, of a request or of metadata."""


class Section(BaseModel):
    """A mapping with a fixed set of keys. ``planned`` keys are refused as not available yet."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )
    planned: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _without_empty_keys(cls, data: Any) -> Any:
        """A known key with nothing behind it counts as absent, as when its entries are commented out."""
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None or key not in cls.model_fields}


def travels(dialect: str, transport: str | None, carriers: frozenset[str]) -> None:
    """Refuse a dialect that ``transport``, where it is known, does not carry. Raises ``ValueError``."""
    if transport is not None and transport not in carriers:
        names = wording.listed(sorted(carriers))
        raise ValueError(f"dialect '{dialect}' does not travel over {transport}{names}")


def distinct(kind: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """``names``, each of which may stand once. Raises ``ValueError``."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{kind} '{name}' stands here twice")
    return names
