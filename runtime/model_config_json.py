"""A model configuration as JSON, in the form that Triton gives it in.

Enumerations stand by name and integers of 64 bits as numbers, which protobuf's own JSON would write as
strings; every field that has a default is there, and messages that were not stated are not.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor


def config_as_dict(message: Any) -> dict[str, Any]:
    """The fields of a message of ``schemas.oip``, such as ``inference.ModelConfig``."""
    told: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            of = entry.fields_by_name["value"]
            told[field.name] = {str(key): _value(of, value[key]) for key in sorted(value)}
        elif field.is_repeated:
            told[field.name] = [_value(field, each) for each in value]
        elif not field.has_presence or message.HasField(field.name):
            told[field.name] = _value(field, value)
    return told


def _value(field: FieldDescriptor, value: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return config_as_dict(value)
    if field.type == FieldDescriptor.TYPE_ENUM and field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return named.name if named else value
    return value
