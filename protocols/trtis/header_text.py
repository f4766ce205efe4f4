"""Messages in HTTP headers: protobuf's text format on one line.

Protobuf's own parser is slow. The form that clients and servers write is read here, any other form by that
parser; the results are the same. Written text is ASCII, as headers require.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from interlingua.protocols.trtis.status import REQUEST_STATUS
from interlingua.schemas import malformed

_SHOWN = 200

_PIECE = (
    r"(?:([a-z_]+)(?:( \{)|: (?:(-?(?:0|[1-9][0-9]{0,19}))"  # name { or name: 12
    r"|(-?(?:0|[1-9][0-9]{0,8})\.[0-9]{1,9})"  # name: 1.5
    r"|([A-Z_]+)"  # name: WORD
    r'|"([ !#-\[\]-~]*)"'  # name: "text without an escape"
    r"))|\})(?: |$)"
)
_PIECES = re.compile(_PIECE)
_PLAIN = re.compile(rf"(?:{_PIECE})*")

_ESCAPES = {byte: f"\\{byte:03o}" for byte in (*range(32), *range(127, 256))}
_ESCAPES |= {ord(char): f"\\{name}" for char, name in zip("\n\r\t\"'\\", "nrt\"'\\", strict=True)}

_CODES: dict[int, str] = {
    value.number: value.name for value in REQUEST_STATUS.DESCRIPTOR.fields_by_name["code"].enum_type.values
}


class _Field(NamedTuple):
    """A field: ``kind`` is protobuf's C++ type, ``inner`` has the fields of a message."""

    kind: int
    repeated: bool
    words: dict[str, int]
    inner: dict[str, _Field]


def read(message_type: type[Message], text: str) -> Any:
    """The message in ``text``, a header's value. Raises MALFORMED."""
    message = _read_plain(message_type(), text)
    if message is None:
        try:
            message = text_format.Parse(text, message_type())
        # ValueError: a number out of the range of an enumeration; SystemError: half a surrogate pair
        except (text_format.ParseError, ValueError, SystemError) as error:
            raise malformed(f"no {message_type.DESCRIPTOR.name} in {text[:_SHOWN]!a}: {error}") from error
    return message


def write_status(status: Any) -> str:
    """The value of the header ``NV-Status`` for a ``RequestStatus``."""
    parts = [f"code: {_CODES[status.code]}"] if status.code else []
    if status.msg:
        parts.append(f"msg: {_quoted(status.msg)}")
    if status.server_id:
        parts.append(f"server_id: {_quoted(status.server_id)}")
    if status.request_id:
        parts.append(f"request_id: {status.request_id}")
    return " ".join(parts)


def write_response_header(header: Any) -> str:
    """The value of the header ``NV-InferResponse`` for an ``InferResponseHeader``, without its classes:
    clients read those in the body, and refuse a header of more than 100 KB."""
    parts = [f"model_name: {_quoted(header.model_name)}"] if header.model_name else []
    if header.model_version:
        parts.append(f"model_version: {header.model_version}")
    if header.batch_size:
        parts.append(f"batch_size: {header.batch_size}")
    for output in header.output:
        parts.append(f"output {{ name: {_quoted(output.name)}")
        if output.HasField("raw"):
            parts.append("raw {")
            parts += [f"dims: {dimension}" for dimension in output.raw.dims]
            if output.raw.batch_byte_size:
                parts.append(f"batch_byte_size: {output.raw.batch_byte_size}")
            parts.append("}")
        parts.append("}")
    if header.id:
        parts.append(f"id: {header.id}")
    return " ".join(parts)


def write_request_header(header: Any) -> str:
    """The value of the header ``NV-InferRequest`` for an ``InferRequestHeader``."""
    parts = [f"batch_size: {header.batch_size}"]
    for entry in header.input:
        parts.append(f"input {{ name: {_quoted(entry.name)}")
        parts += [f"dims: {dimension}" for dimension in entry.dims]
        if entry.batch_byte_size:
            parts.append(f"batch_byte_size: {entry.batch_byte_size}")
        parts.append(f"{_shared_memory(entry)}}}")
    for entry in header.output:
        parts.append(f"output {{ name: {_quoted(entry.name)} {_shared_memory(entry)}}}")
    for field in ("correlation_id", "id", "flags", "priority", "timeout_microseconds"):
        value = getattr(header, field)
        if value:
            parts.append(f"{field}: {value}")
    return " ".join(parts)


def _shared_memory(entry: Any) -> str:
    if not entry.HasField("shared_memory"):
        return ""
    place = entry.shared_memory
    return (
        f"shared_memory {{ name: {_quoted(place.name)} offset: {place.offset} "
        f"byte_size: {place.byte_size} }} "
    )


def _quoted(text: str) -> str:
    # escapes are for bytes, and Latin-1 is bytes as text
    return f'"{text.encode().decode("latin-1").translate(_ESCAPES)}"'


def _read_plain(message: Any, text: str) -> Any:
    """``message`` filled from ``text``; None if that is not plain or not valid."""
    if _PLAIN.fullmatch(text) is None:
        return None
    fields = _fields(message.DESCRIPTOR)
    outer: list[tuple[Any, dict[str, _Field]]] = []
    try:
        for name, brace, integer, decimal, word, string in _PIECES.findall(text):
            if not name:
                message, fields = outer.pop()
                continue
            kind, repeated, words, inner = fields[name]
            if kind == FieldDescriptor.CPPTYPE_MESSAGE:
                if not brace or (not repeated and message.HasField(name)):
                    return None
                outer.append((message, fields))
                value = getattr(message, name)
                message, fields = (value.add() if repeated else value), inner
                message.SetInParent()
                continue
            if kind == FieldDescriptor.CPPTYPE_STRING:
                if brace or integer or decimal or word:
                    return None
                value = string
            elif kind == FieldDescriptor.CPPTYPE_ENUM:
                value = words[word]
            elif kind == FieldDescriptor.CPPTYPE_FLOAT:
                value = float(integer or decimal)
            else:
                value = int(integer)
            if repeated:
                getattr(message, name).append(value)
            elif getattr(message, name):
                return None  # a repeated field
            else:
                setattr(message, name, value)
    except (KeyError, IndexError, ValueError):
        # an unknown field, a surplus brace, a wrong type, or out of range
        return None
    return None if outer else message


@cache
def _fields(descriptor: Descriptor) -> dict[str, _Field]:
    return {
        field.name: _Field(
            field.cpp_type,
            field.is_repeated,
            {value.name: value.number for value in field.enum_type.values} if field.enum_type else {},
            _fields(field.message_type) if field.message_type else {},
        )
        for field in descriptor.fields
    }
