"""Passthrough from HTTP to HTTP: the tensors in a body go on as they came, the messages in headers are read.

The sizes of tensors follow from the header and the signature. The upstream's answer ends with a copy of its
header, which is replaced. Strings, whose sizes only their contents say, go through ``codec``, as do
sequences, priorities, classes and shared memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf import text_format

from interlingua.protocols.dialect import Opened, Passthrough, PassthroughNames
from interlingua.protocols.trtis import client_http, codec
from interlingua.protocols.trtis.client_codec import PendingCall
from interlingua.protocols.trtis.client_http import decode_infer, infer_call, succeeded
from interlingua.protocols.trtis.codec import (
    DATATYPE_NUMBERS,
    RESPONSE_HEADER,
    answered_version,
    fold,
    unfold,
)
from interlingua.protocols.trtis.codec_http import (
    BINARY,
    REQUEST,
    RESPONSE,
    STATUS,
    query_format,
    success_text,
)
from interlingua.protocols.trtis.header_text import read, write_request_header, write_response_header
from interlingua.protocols.wire import HttpAnswer, HttpCall, HttpReply, HttpRequest
from interlingua.schemas import (
    Context,
    Datatype,
    InferenceError,
    InferHeads,
    InferResponse,
    SharedMemoryRef,
    Signature,
    TensorHead,
    element_count,
)

_SHORT = 4096
"""The length of the longest header whose message passes."""


_FORMATS = frozenset({"", "format=binary", "format=text"})
_EMPTY = memoryview(b"")


@dataclass(frozen=True, slots=True)
class _Written:
    """An answer with ``size`` bytes of outputs: the text of its header, its copy at the end of the body."""

    size: int
    text: str
    copy: bytes
    version: str


@dataclass(frozen=True, slots=True)
class _Request:
    """The header of a request with ``size`` bytes of inputs."""

    signature: Signature
    heads: InferHeads
    header: Any
    size: int
    complete: bool  # every input has dimensions


def _heads(opened: Opened[HttpAnswer], signature: Signature) -> InferHeads | None:
    request: HttpRequest = opened.message[0]
    # the argument is what is known of the request from here on
    opened.argument = found = _request(opened, signature) if request.query in _FORMATS else None
    size = len(request.body) if request.rest is None else request.rest.length
    return found.heads if found is not None and size == found.size else None


def prefix(headers: Mapping[str, str]) -> int:
    """See ``Prefix``. The messages are in headers: a body has only tensors, that of an answer a copy of its
    header at the end."""
    return 0


def _request(opened: Opened[HttpAnswer], signature: Signature) -> _Request | None:
    """The request; None if it needs decoding or is invalid."""
    request, header = opened.message
    return _measured(header, signature) if len(request.headers[REQUEST.lower()]) <= _SHORT else None


def _measured(header: Any, signature: Signature) -> _Request | None:
    specs = signature.input_names
    sizes: list[int] = []

    def take(name: str, size: int) -> memoryview:
        sizes.append(size)
        return _EMPTY

    if header.flags or any(
        name.name in specs and specs[name.name].datatype is Datatype.BYTES for name in header.input
    ):
        return None
    try:
        request, _ = codec.decode_request(header, "", "", signature, Context(), take)
    except InferenceError:
        return None
    if request.sequence or request.priority or request.timeout_us or not request.outputs:
        return None
    if any(isinstance(tensor.data, SharedMemoryRef) for tensor in request.inputs):
        return None
    if any(output.classification or output.placement for output in request.outputs):
        return None
    heads = InferHeads(
        tuple([TensorHead(tensor.name, tensor.datatype, tensor.shape) for tensor in request.inputs]),
        tuple([output.name for output in request.outputs]),
    )
    complete = all(entry.dims for entry in header.input)
    return _Request(signature, heads, header, sum(sizes), complete)


def _call(opened: Opened[HttpAnswer], names: PassthroughNames) -> HttpCall | None:
    request: HttpRequest = opened.message[0]
    text = request.headers[REQUEST.lower()]
    parsed: _Request = opened.argument
    if names.inputs or names.outputs or not parsed.complete:
        text = _rewritten(parsed, names)
    query = f"format={'binary' if query_format(request) == 'binary' else 'text'}"
    try:
        call = infer_call(names.remote, names.version, query, text, [request.body])
    except InferenceError:
        return None  # decoding refuses it with the name of the upstream
    call.prefix = prefix
    if request.rest is not None:
        call.rest, call.length = request.rest, request.rest.length
    return call


def _rewritten(parsed: _Request, names: PassthroughNames) -> str:
    """The header in the upstream's names. Its model may have other shapes than declared here: inputs without
    dimensions get those of the upstream."""
    header = codec.REQUEST_HEADER()
    header.CopyFrom(parsed.header)
    for entry, head in zip(header.input, parsed.heads.inputs, strict=True):
        entry.dims[:] = fold(head.shape, parsed.signature)
    for entries, renamed in ((header.input, names.inputs), (header.output, names.outputs)):
        for entry in entries:
            entry.name = renamed.get(entry.name, entry.name)
    return write_request_header(header)


def _answer(
    opened: Opened[HttpAnswer], names: PassthroughNames, reply: HttpReply
) -> tuple[HttpAnswer, str] | InferResponse | None:
    succeeded(reply)
    request, header = opened.message
    found = _written(opened, names, reply)
    rest = reply.rest
    if found is None or (len(reply.body) if rest is None else rest.length) < found.size:
        if rest is not None:
            return None
        return decode_infer(
            PendingCall(names.version, header.batch_size, {}, _remote_signature(names)), reply
        )
    headers = (RESPONSE, found.text), (STATUS, success_text(request.context)), BINARY
    if rest is not None:
        rest.end_with(found.size, found.copy)
        return HttpAnswer(200, headers, rest=rest), found.version
    return HttpAnswer(200, headers, [memoryview(reply.body)[: found.size], found.copy]), found.version


def _remote_signature(names: PassthroughNames) -> Signature:
    """The outputs in the upstream's names."""
    local, renamed = names.signature, names.outputs
    if not renamed:
        return local  # a new one would fill the caches by signature
    outputs = [replace(spec, name=renamed.get(spec.name, spec.name)) for spec in local.outputs]
    return Signature((), tuple(outputs), local.max_batch_size)


def _written(opened: Opened[HttpAnswer], names: PassthroughNames, reply: HttpReply) -> _Written | None:
    """What the caller gets with the outputs of ``reply``; None if it must be decoded."""
    text = reply.headers.get(RESPONSE.lower())
    if text is None or len(text) > _SHORT:
        return None
    binary = query_format(opened.message[0]) == "binary"
    try:
        return _answer_of(opened.argument, names, read(RESPONSE_HEADER, text), binary)
    except (InferenceError, ValueError):
        return None


def _answer_of(parsed: _Request, names: PassthroughNames, reply: Any, binary: bool) -> _Written | None:
    """The answer with the upstream's header ``reply``. Raises for shapes that are not valid."""
    signature, batch = parsed.signature, parsed.header.batch_size
    expected = [names.outputs.get(name, name) for name in parsed.heads.outputs]
    if [entry.name for entry in reply.output] != expected or reply.batch_size not in (0, batch):
        return None
    version = str(reply.model_version) if reply.model_version else names.version
    number = answered_version(version)
    identity = parsed.header.id
    header = RESPONSE_HEADER(model_name=names.model, model_version=number, batch_size=batch, id=identity)
    total = 0
    for name, entry in zip(parsed.heads.outputs, reply.output, strict=True):
        spec = signature.output_names[name]
        shape = unfold(tuple(entry.raw.dims), batch, spec, signature)
        size = element_count(shape) * spec.datatype.itemsize
        if not _is_usual(entry, spec.datatype, size):
            return None
        raw = header.output.add(name=name).raw
        raw.dims.extend(fold(shape, signature))
        raw.batch_byte_size = size
        total += size
    copy = header.SerializeToString() if binary else _text(header)
    return _Written(total, write_response_header(header), copy, version)


def _is_usual(entry: Any, datatype: Datatype, size: int) -> bool:
    """Whether an output has raw contents of ``size`` bytes, which its datatype determines."""
    if datatype is Datatype.BYTES or datatype not in DATATYPE_NUMBERS or not entry.HasField("raw"):
        return False
    if not entry.raw.dims:
        return False
    return not entry.batch_classes and entry.raw.batch_byte_size in (0, size)


def _text(header: Any) -> bytes:
    return text_format.MessageToString(header, as_utf8=False).encode()


def _without_contents(opened: Opened[HttpAnswer]) -> Opened[HttpAnswer]:
    request, header = opened.message
    return replace(opened, message=(replace(request, body=b""), header))


PASSTHROUGH: Passthrough[HttpCall, HttpAnswer, HttpReply] = Passthrough(
    _heads, _call, _answer, without_contents=_without_contents
)

INFER_CALL = replace(client_http.INFER_CALL, passthrough=PASSTHROUGH)
