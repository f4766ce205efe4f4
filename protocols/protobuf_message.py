"""Protobuf messages from untrusted bytes: whatever does not parse is MALFORMED."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError, Message

from interlingua.protocols.protobuf_wire import split
from interlingua.protocols.wire import Buffer
from interlingua.schemas import InferenceError, malformed


def parse(message_type: type[Message], message: Buffer) -> Any:
    """``message`` as a ``message_type``. Raises MALFORMED."""
    try:
        return message_type.FromString(message)  # type: ignore[arg-type]  # any buffer will do
    except DecodeError as error:
        raise unparsable(message_type, error) from error


def parse_split(message_type: type[Message], message: Buffer, field: int) -> tuple[Any, list[memoryview]]:
    """The message without the length-delimited ``field``, parsed, and the contents of that field as views.
    Raises MALFORMED."""
    rest, contents = split_off(message_type, message, field)
    return parse(message_type, rest), contents


def split_off(message_type: type[Message], message: Buffer, field: int) -> tuple[Buffer, list[memoryview]]:
    """As :func:`parse_split`, with the rest of the message unparsed."""
    try:
        return split(message, field)
    except DecodeError as error:
        raise unparsable(message_type, error) from error


def unparsable(message_type: type[Message], error: DecodeError) -> InferenceError:
    """The error for bytes that are not a ``message_type``."""
    return malformed(f"unable to parse {message_type.DESCRIPTOR.name}: {error}")
