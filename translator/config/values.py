"""Types and rules that several sections of the schema share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from interlingua.translator.config import wording

Transport = Literal["http", "grpc", "brpc", "tcp"]
ListenerTransport = Literal["http", "grpc", "brpc", "tcp", "any"]

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
