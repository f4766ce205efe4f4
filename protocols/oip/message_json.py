"""Protobuf messages as JSON the way Triton prints them, and back.

Unlike protobuf's own JSON: names are those of the contract, every field is there with its default, and
64-bit integers are numbers. A submessage, or a choice, that is not set is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from protocols.oip.json_members import malformed


def message_json(message: Message) -> dict[str, Any]:
    """``message`` as a JSON object. Raises nothing for a message that was parsed."""
    return {
        field.name: _value(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def read_message(document: Mapping[str, Any], message_type: type[Message]) -> Message:
    """The message that JSON ``document`` describes; members that it does not have are left out. Raises
    MALFORMED."""
    try:
        return json_format.ParseDict(dict(document), message_type(), ignore_unknown_fields=True)
    # infinity for an enumeration and half a surrogate pair for a message come out as the latter two
    except (json_format.ParseError, ValueError, OverflowError, SystemError) as error:
        raise malformed(f"this is no {message_type.DESCRIPTOR.name}: {error}") from error


def _value(field: Any, value: Any) -> Any:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        of = kind.fields_by_name["value"]
        return {str(key): _single(of, member) for key, member in value.items()}
    if field.is_repeated:
        return [_single(field, member) for member in value]
    return _single(field, value)


def _single(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return message_json(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return value if named is None else named.name
    return value
