"""Field 6 of a model's metadata over gRPC: parameters by name, in two conflicting forms.

The protocol's text has strings (``map<string, string> properties``), MLServer has messages (``map<string,
InferParameter> parameters``). A client of one cannot parse the other, so the field is written for clients of
MLServer alone, and read from the bytes of either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError

from interlingua.protocols.oip.grpc_messages import parameter_messages, read_parameters
from interlingua.protocols.protobuf_wire import LENGTH_DELIMITED, fields, join, read_fields
from interlingua.protocols.wire import Buffer
from interlingua.schemas import Parameter
from interlingua.schemas.oip import MESSAGES

_FIELD = 6
_KEY, _VALUE = 1, 2

_MESSAGE_TAGS = frozenset(b"\x08\x10\x1a")
"""The first byte of a boolean, an integer or a string in an ``InferParameter`` of MLServer; no readable text
begins so."""

_PARAMETER: Any = MESSAGES["inference.InferParameter"]


def add_model_parameters(message: bytes, parameters: Mapping[str, Parameter]) -> bytes:
    """``message``, a model's metadata, with ``parameters`` in MLServer's form, which has booleans, integers
    and strings; floating-point numbers are dropped."""
    carried = {key: value for key, value in parameters.items() if type(value) is not float}
    entries = [
        join(join(b"", _KEY, [key.encode()]), _VALUE, [value.SerializeToString()])
        for key, value in parameter_messages(carried).items()
    ]
    return join(message, _FIELD, entries)


def read_model_parameters(message: Buffer) -> dict[str, Parameter]:
    """The parameters in ``message``, a model's metadata that parses; entries in neither form are dropped."""
    found: dict[str, Parameter] = {}
    for number, kind, entry in fields(message):
        if number != _FIELD or kind != LENGTH_DELIMITED or isinstance(entry, int):
            continue
        try:
            members = read_fields(entry)
            key, value = (bytes(members.get(each, b"")) for each in (_KEY, _VALUE))
            found |= _read(key.decode(), value)
        except (DecodeError, UnicodeDecodeError):
            continue
    return found


def _read(key: str, value: bytes) -> dict[str, Parameter]:
    if value[:1] and value[0] in _MESSAGE_TAGS:
        return read_parameters({key: _PARAMETER.FromString(value)})
    return {key: value.decode()}
