"""Types and rules that several sections of the schema share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo

from interlingua.protocols.registry import DIALECTS
from interlingua.schemas.offload import MIN_DECOMPRESSED_BYTES, MIN_ELEMENTS, DecodingLimits
from interlingua.translator.config import wording

Transport = Literal["http", "grpc", "brpc", "tcp"]
ListenerTransport = Literal["http", "grpc", "brpc", "tcp", "any"]

Engine = Literal["native", "library"]

DECODING = DecodingLimits()
"""The default limits on the work for one message."""

Decompressed = Annotated[int, Field(ge=MIN_DECOMPRESSED_BYTES)]

Ratio = Annotated[int, Field(ge=1)]

Elements = Annotated[int, Field(ge=MIN_ELEMENTS)]
"""Smaller messages are not counted."""

LARGEST_MESSAGE = 2**31 - 1
"""The largest message that gRPC can frame."""

DETECTED: tuple[Transport, ...] = ("http", "grpc", "brpc")
"""The transports that a listener of any transport detects by the first bytes of a connection."""


def carried(transport: str) -> tuple[str, ...]:
    """The transports that a listener of ``transport`` carries."""
    return DETECTED if transport == "any" else (transport,)


def _parameter(value: Any) -> Any:
    if not isinstance(value, bool | int | float | str):
        raise ValueError(f"must be text, a number, true or false, not {wording.shown(value)}")
    return value


ParameterValue = Annotated[bool | int | float | str, BeforeValidator(_parameter)]
"""The value of a parameter, of a request or of metadata."""


def travels(dialect: str, transport: str | None, carriers: frozenset[str]) -> None:
    """Refuse a dialect that ``transport``, where it is known, does not carry. Raises ``ValueError``."""
    if transport is not None and not carriers.intersection(carried(transport)):
        if transport == "any" and "tcp" in carriers:
            raise ValueError(
                f"dialect '{dialect}' travels over tcp alone: framed messages have no magic number, so they "
                "need a listener of their own with transport: tcp"
            )
        names = wording.listed(sorted(carriers))
        raise ValueError(f"dialect '{dialect}' does not travel over {transport}{names}")


def distinct(kind: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """``names``, which must be distinct. Raises ``ValueError``."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{kind} '{name}' is repeated")
    return names


def over_http_or_grpc(value: str | None, info: ValidationInfo) -> str | None:
    """``value`` of an option that is for these transports alone."""
    transport = info.data.get("transport", "http")
    if value is not None and transport not in ("http", "grpc"):
        raise ValueError(f"is for transport http or grpc, not {transport}")
    return value


def known_flavors() -> Iterator[tuple[str, tuple[str, ...]]]:
    """The flavors of every dialect that has several."""
    return ((name, flavors) for name, each in DIALECTS.items() if (flavors := each.flavors))
