"""Protobuf messages as JSON values, the way Triton prints them.

Unlike protobuf's own JSON: names are those of the contract, every field is there with its default, and
64-bit integers are numbers. A submessage, or a choice, that is not set is omitted.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message


def message_json(message: Message) -> dict[str, Any]:
    """``message`` as a JSON object."""
    return {
        field.name: _value(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _value(field: Any, value: Any) -> Any:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        of = kind.fields_by_name["value"]
        return {str(key): _single(of, value[key]) for key in sorted(value)}
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
