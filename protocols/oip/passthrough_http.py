"""Passthrough from HTTP to HTTP of messages whose tensors are all binary data: the body goes on as it came.

Only the JSON before the data is read: names, datatypes, shapes and sizes. If names differ, that JSON is
written again and the data follow as they are. A message with anything else in its JSON goes through
``codec_http``: data, parameters with a meaning, shared memory, unknown members, repeated keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from interlingua.protocols.content_coding import accepted_coding
from interlingua.protocols.dialect import Opened, Passthrough, PassthroughNames
from interlingua.protocols.json_document import parse_unambiguous, write_json
from interlingua.protocols.oip import client_http
from interlingua.protocols.oip.client_http import NO_FORM, decode_infer, model_path
from interlingua.protocols.oip.codec_http import HEADER_LENGTH
from interlingua.protocols.oip.json_members import members, name_of, tensor_head, text
from interlingua.protocols.wire import (
    BodyRest,
    Buffer,
    Headers,
    HttpAnswer,
    HttpCall,
    HttpReply,
    HttpRequest,
)
from interlingua.schemas import (
    Datatype,
    InferenceError,
    InferHeads,
    InferResponse,
    Parameter,
    Signature,
    TensorHead,
    element_count,
    malformed,
)

Described = tuple[str, Datatype, tuple[int, ...], int]
"""A tensor's name, datatype, shape and size in bytes."""

LONGEST = 4096
"""The size in bytes of the longest JSON that passes."""

_LENGTH = HEADER_LENGTH.lower()
_DIGITS = 8
"""The longest text of a length that is read here."""

_OCTETS = ("Content-Type", "application/octet-stream")
_TENSOR = frozenset({"name", "datatype", "shape", "parameters"})
_OUTPUT = frozenset({"name", "parameters"})
_REQUEST = frozenset({"id", "parameters", "inputs", "outputs"})
_ANSWER = frozenset({"id", "model_name", "model_version", "parameters", "outputs"})


@dataclass(frozen=True, slots=True)
class _Request:
    """The JSON of a request, ``length`` bytes for ``size`` bytes of data. ``headers`` are those of its call
    with this JSON; they are never changed."""

    heads: InferHeads
    id: str
    size: int
    length: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Answer:
    """The JSON of an answer, ``length`` bytes for ``size`` bytes of data. ``plain``: it has no parameters.
    ``headers`` are those of an answer with this JSON."""

    model: str
    version: str
    id: str
    outputs: tuple[Described, ...]
    names: tuple[str, ...]
    size: int
    plain: bool
    length: int
    headers: Headers


def _heads(opened: Opened[HttpAnswer], signature: Signature) -> InferHeads | None:
    request: HttpRequest = opened.message
    headers = request.headers
    if headers.get("content-encoding"):
        return None
    if (coding := headers.get("accept-encoding")) and accepted_coding(coding):
        return None
    # the argument is what is known of the request from here on
    opened.argument = found = _read(_request, headers, request.body, request.rest)
    return None if found is None else found.heads


def _call(opened: Opened[HttpAnswer], names: PassthroughNames) -> HttpCall:
    request: HttpRequest = opened.message
    known: _Request = opened.argument
    body, rest, headers = request.body, request.rest, known.headers
    parts = [body]
    if names.inputs or names.outputs:
        header = _renamed(bytes(memoryview(body)[: known.length]), names)
        parts = [header, memoryview(body)[known.length :]]
        headers = dict(_headers_for(len(header)))
    length = None if rest is None else rest.length + sum(map(len, parts))
    path = _path(names.remote, names.version)
    return HttpCall("POST", path, "", headers, parts, request.context, False, rest, length, prefix)


def _path(model: str, version: str) -> str:
    return f"{model_path(model, version)}/infer"


def _renamed(header: bytes, names: PassthroughNames) -> bytes:
    document = parse_unambiguous(header)
    for key, renamed in (("inputs", names.inputs), ("outputs", names.outputs)):
        for entry in document.get(key, ()):
            entry["name"] = renamed.get(entry["name"], entry["name"])
    return write_json(document)


def _answer(
    opened: Opened[HttpAnswer], names: PassthroughNames, reply: HttpReply
) -> tuple[HttpAnswer, str] | InferResponse | None:
    if reply.status == 200:
        found: _Answer | None = _read(_response, reply.headers, reply.body, reply.rest)
        request: _Request = opened.argument
        # an answer without data has another form
        if found is not None and found.size and _has_outputs(found, request, names):
            if found.model == names.model and found.id == request.id and not names.back:
                return HttpAnswer(200, found.headers, [reply.body], reply.rest), found.version
            if found.plain:
                return _renamed_answer(found, request, names, reply), found.version
    return decode_infer(NO_FORM, reply) if reply.rest is None else None


def _has_outputs(found: _Answer, request: _Request, names: PassthroughNames) -> bool:
    """Whether an answer has the outputs that the caller wants, in their order."""
    outputs, back, wanted = found.names, names.back, request.heads.outputs
    if back:
        outputs = tuple([back.get(name, name) for name in outputs])
    return outputs == (_chosen(names.order, wanted) if wanted else names.order)


def _renamed_answer(
    found: _Answer, request: _Request, names: PassthroughNames, reply: HttpReply
) -> HttpAnswer:
    """The caller's answer in the caller's names."""
    described = [(names.back.get(each[0], each[0]), *each[1:]) for each in found.outputs]
    header = _binary_header(names.model, found.version, described, request.id)
    headers = _headers_for(len(header))
    parts: list[Buffer] = [header, memoryview(reply.body)[found.length :]]
    return HttpAnswer(200, headers, parts, reply.rest)


def _binary_header(model: str, version: str, outputs: Sequence[Described], identity: str) -> bytes:
    """The JSON of an answer with these outputs as binary data, and no parameters."""
    document: dict[str, Any] = {"id": identity} if identity else {}
    document["model_name"] = model
    if version:
        document["model_version"] = version
    document["outputs"] = [
        {
            "name": name,
            "datatype": datatype.value,
            "shape": shape,
            "parameters": {"binary_data_size": size},
        }
        for name, datatype, shape, size in outputs
    ]
    return write_json(document)


def _chosen(order: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([name for name in order if name in wanted])


def prefix(headers: Mapping[str, str]) -> int | None:
    """The size of the JSON before the data. See ``Prefix``."""
    text = headers.get(_LENGTH, "")
    return None if headers.get("content-encoding") or len(text) > _DIGITS else _length(text) or None


def _read(read: Any, headers: Mapping[str, str], body: Buffer, rest: BodyRest | None) -> Any:
    """What ``read`` finds in the JSON of ``body``, which goes on with ``rest``; None if it is not for the
    data that follow."""
    given = headers.get(_LENGTH)
    if not given or len(given) > _DIGITS or not (length := _length(given)):
        return None
    found = read(body[:length] if type(body) is bytes else bytes(body[:length]))
    size = len(body) if rest is None else len(body) + rest.length
    return found if found is not None and found.size == size - length else None


def _length(text: str) -> int:
    """The size of the JSON, as its header has it; 0 for none, and if it is too long to pass."""
    return int(text) if text.isascii() and text.isdigit() and int(text) <= LONGEST else 0


def _headers_for(length: int) -> Headers:
    return _OCTETS, (HEADER_LENGTH, str(length))


def _request(header: bytes) -> _Request | None:
    """The request in ``header``; None if it needs decoding or is invalid."""
    with suppress(InferenceError):
        document = _document(header, _REQUEST)
        outputs = None if document is None else _outputs(document)
        if document is not None and outputs is not None:
            tensors = _tensors(document, "inputs")
            heads = InferHeads(tuple([TensorHead(*each[:3]) for each in tensors]), outputs)
            size, length = sum([each[3] for each in tensors]), len(header)
            return _Request(heads, text(document, "id"), size, length, dict(_headers_for(length)))
    return None


def _response(header: bytes) -> _Answer | None:
    with suppress(InferenceError):
        document = _document(header, _ANSWER)
        if document is None:
            return None
        parameters = document.get("parameters", {})
        if type(parameters) is dict and all(isinstance(each, Parameter) for each in parameters.values()):
            outputs = _tensors(document, "outputs")
            return _Answer(
                text(document, "model_name"),
                text(document, "model_version"),
                text(document, "id"),
                outputs,
                tuple([each[0] for each in outputs]),
                sum([each[3] for each in outputs]),
                not parameters,
                len(header),
                _headers_for(len(header)),
            )
    return None


def _document(header: bytes, known: frozenset[str]) -> dict[str, Any] | None:
    """The JSON object in ``header`` if it has only ``known`` members, none of them null."""
    document = parse_unambiguous(header)
    if type(document) is not dict or not document.keys() <= known or None in document.values():
        return None
    return document


def _tensors(document: Mapping[str, Any], key: str) -> tuple[Described, ...]:
    """The tensors of an array, all binary data. Raises for any other, and for a wrong size."""
    found = []
    for index, entry in enumerate(members(document, key)):
        name, datatype, shape = tensor_head(entry, key, index)
        parameters = entry.get("parameters")
        if entry.keys() != _TENSOR or type(parameters) is not dict or len(parameters) != 1:
            raise malformed(f"'{key}[{index}]' is not binary data alone")
        size = parameters.get("binary_data_size")
        if type(size) is not int or not _may_fill(size, datatype, element_count(shape, name)):
            raise malformed(f"'{key}[{index}]' has another size")
        found.append((name, datatype, shape, size))
    return tuple(found)


def _may_fill(size: int, datatype: Datatype, count: int) -> bool:
    """Whether ``count`` elements may have ``size`` bytes. An element of BYTES has at least four."""
    if datatype.itemsize:
        return size == count * datatype.itemsize
    return size >= 4 * count if count else not size


def _outputs(document: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The names of the requested outputs, none for all; None if one is not to be binary data alone."""
    if "outputs" not in document:
        return () if _is_flag(document.get("parameters"), "binary_data_output") else None
    if "parameters" in document and not _is_flag(document["parameters"], "binary_data_output"):
        return None
    entries: Sequence[Mapping[str, Any]] = members(document, "outputs")
    names = tuple([name_of(entry, "outputs", index) for index, entry in enumerate(entries)])
    binary = all(
        entry.keys() == _OUTPUT and _is_flag(entry["parameters"], "binary_data") for entry in entries
    )
    return names if names and binary and len(set(names)) == len(names) else None


def _is_flag(parameters: Any, key: str) -> bool:
    """Whether ``key`` is the only parameter, and true."""
    return type(parameters) is dict and len(parameters) == 1 and parameters.get(key) is True


def _without_contents(opened: Opened[HttpAnswer]) -> Opened[HttpAnswer]:
    return replace(opened, message=None)


PASSTHROUGH: Passthrough[HttpCall, HttpAnswer, HttpReply] = Passthrough(
    _heads, _call, _answer, without_contents=_without_contents
)

INFER_CALL = replace(client_http.INFER_CALL, passthrough=PASSTHROUGH)
