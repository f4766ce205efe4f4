"""Protobuf messages from untrusted bytes: whatever does not parse is MALFORMED.

Each field of a message becomes an object, of up to a hundred bytes for two on the wire. The fields of a long
message are counted before anything is built.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError, Message

from interlingua.protocols.protobuf_wire import LENGTH_DELIMITED, MAX_FIELDS, fields, split
from interlingua.protocols.wire import Buffer
from interlingua.schemas import InferenceError, malformed, not_carried, offload

SHORT_BYTES = 1 << 14
"""A message of up to this size takes less than about 2 ms to parse."""


def parse(message_type: type[Message], message: Buffer) -> Any:
    """``message`` as a ``message_type``. Raises MALFORMED."""
    try:
        return message_type.FromString(message)  # type: ignore[arg-type]  # any buffer will do
    except DecodeError as error:
        raise unparsable(message_type, error) from error


def serialize(dialect: str, message_type: type[Message], **fields: Any) -> bytes:
    """A message of ``fields``, serialized. Raises UNREPRESENTABLE, which names ``dialect``."""
    try:
        return bytes(message_type(**fields).SerializeToString())
    except ValueError as error:
        raise unwritable(dialect, error) from error


def unwritable(dialect: str, error: ValueError) -> InferenceError:
    """The error for what protobuf refuses to write: half a surrogate pair, a number out of range."""
    return not_carried(dialect, f"this: {error}")


def parse_bounded(message_type: type[Message], message: Buffer) -> Any:
    """As :func:`parse`, for a request without the data of tensors: at most ``MAX_FIELDS`` fields, at
    all depths. A long one is parsed where that may take long, see ``offload``."""
    if len(message) > SHORT_BYTES:
        offload.require()
        try:
            if count_fields(message_type, message, MAX_FIELDS, 1) > MAX_FIELDS:
                raise DecodeError(f"more than {MAX_FIELDS} fields")
        except DecodeError as error:
            raise unparsable(message_type, error) from error
    return parse(message_type, message)


def count_fields(message_type: type[Message], message: Buffer, most: int, weight: int) -> int:
    """The fields of ``message`` at all depths, up to about ``most``: a message in a field counts as
    ``weight``, any other field as 1. Raises ``DecodeError``."""
    return _count_fields(message_type.DESCRIPTOR, message, most, weight)


def _count_fields(descriptor: Any, message: Buffer, most: int, weight: int) -> int:
    messages = {
        number: field.message_type
        for number, field in descriptor.fields_by_number.items()
        if field.message_type is not None
    }
    count = 0
    for number, kind, value in fields(message, most + 1):
        inner = messages.get(number)
        if inner is None or kind != LENGTH_DELIMITED or isinstance(value, int):
            count += 1
        else:
            count += weight + _count_fields(inner, value, most - count, weight)
        if count > most:
            break
    return count


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
