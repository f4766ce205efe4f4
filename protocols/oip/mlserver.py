"""MLServer's own formats: the content types of its codecs, raw contents with empty typed ones, and streams of
bare answers.

The codecs are those of MLServer 1.7.1: ``base64`` and ``str`` ignore the shape and take all elements; ``np``
and ``pd`` read null as NaN; ``np`` cuts BYTES over gRPC into elements as long as the last dimension. For a
model on an upstream, whose server has the codecs, elements stay encoded and keep their content type.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import nan, prod
from typing import Any

import numpy as np

from interlingua.protocols.dialect import Action, Opened, UpstreamCall
from interlingua.protocols.json_document import LazyArray
from interlingua.protocols.oip import stream_grpc
from interlingua.protocols.oip.codec import own_parameters
from interlingua.protocols.oip.codec_grpc import REQUEST, Raws, decode_reply, encode_infer
from interlingua.protocols.oip.content_type import decode_base64
from interlingua.protocols.oip.grpc_messages import fail
from interlingua.protocols.oip.http_tensors import FromJson, plain_tensor
from interlingua.protocols.oip.json_members import mapping
from interlingua.protocols.oip.typed_contents import read_contents
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.schemas import (
    Datatype,
    InferenceError,
    InferResponse,
    Operation,
    SharedMemoryRef,
    Signature,
    Tensor,
    TensorSpec,
    invalid_tensor,
    pack_bytes,
)
from interlingua.schemas.datatypes import DATATYPES

_CONTENT_TYPE = "content_type"
_STRINGS = frozenset({"str", "base64"})
_ARRAYS = frozenset({"np", "pd"})
_FLOATS = frozenset({Datatype.FP16, Datatype.FP32, Datatype.FP64})


# --- content types over HTTP


def reader_of(document: Mapping[str, Any], signature: Signature) -> FromJson:
    """The reader of the inputs of the request ``document``, whose content type is the default of its
    inputs."""
    whole = mapping(document, "parameters").get(_CONTENT_TYPE)
    return partial(_from_json, signature, whole)


def _from_json(
    signature: Signature,
    whole: Any,
    name: str,
    datatype: Datatype,
    shape: tuple[int, ...],
    data: Any,
    parameters: Mapping[str, Any],
) -> Tensor:
    content_type = parameters.get(_CONTENT_TYPE) or whole
    own = own_parameters(parameters)
    if content_type in _STRINGS and datatype is Datatype.BYTES:
        if type(data) is str:
            data = [data]
        elif isinstance(data, LazyArray):
            data = data.tolist()
        if type(data) is list and all(type(value) is str for value in data):
            shape = _of_as_many(len(data), shape, signature.input_names.get(name))
        tensor = replace(plain_tensor(name, datatype, shape, data), parameters=own)
        # as on MLServer, base64 is a content type of inputs alone
        return tensor if signature.elsewhere else _decoded(tensor)
    # MLServer reads null in a frame, but fails to answer with one
    arrays = _ARRAYS - {"pd"} if signature.elsewhere else _ARRAYS
    try:
        tensor = plain_tensor(name, datatype, shape, data)
    except InferenceError:
        if content_type not in arrays or datatype not in _FLOATS:
            raise
        # nulls are rare, and looking for them is slower than reading numbers
        tensor = plain_tensor(name, datatype, shape, _null_as_nan(data))
    return replace(tensor, parameters=own)


def _decoded(tensor: Tensor) -> Tensor:
    """``tensor`` for a model here, without the parameters that described it."""
    return replace(decode_base64(tensor), parameters=None)


def _null_as_nan(data: Any) -> Any:
    if isinstance(data, LazyArray):
        data = data.tolist()
    if type(data) is list:
        return [_null_as_nan(value) for value in data]
    return nan if data is None else data


def _of_as_many(count: int, shape: tuple[int, ...], spec: TensorSpec | None) -> tuple[int, ...]:
    """``shape`` if it has ``count`` elements; else one that has, of the declared rank."""
    if prod(shape) == count:
        return shape
    return (count, 1) if spec is not None and len(spec.shape) == 2 else (count,)


# --- requests over gRPC


def as_raw(opened: Opened[GrpcAnswer], signature: Signature) -> Opened[GrpcAnswer]:
    """``opened``, a message of inference, with all data decoded by the codecs and in raw contents. An input
    has its typed contents, or the next raw ones if those are absent or empty. The message itself is
    unchanged. Raises INVALID_TENSOR for typed contents of another datatype."""
    head, raws, *rest = opened.message
    both = raws and any(tensor.HasField("contents") for tensor in head.inputs)
    if not both and not any(_CONTENT_TYPE in tensor.parameters for tensor in head.inputs):
        return opened
    decoded: Any = REQUEST()
    decoded.CopyFrom(head)
    unused = iter(raws)
    contents: Raws = []
    for tensor in decoded.inputs:
        datatype = DATATYPES.get(tensor.datatype)
        if datatype is None:
            return opened  # the decoder refuses it by name
        if "shared_memory_region" in tensor.parameters:
            continue
        owner = f"input tensor '{tensor.name}' for model '{head.model_name}'"
        filled = bool(tensor.contents.ListFields())
        data = read_contents(owner, datatype, tensor.contents) if filled else next(unused, b"")
        tensor.ClearField("contents")
        if datatype is Datatype.BYTES and _CONTENT_TYPE in tensor.parameters:
            data = _meant(tensor, owner, data, signature)
        contents.append(memoryview(data))
    return replace(opened, message=(decoded, contents, *rest))


def _meant(tensor: Any, owner: str, packed: Any, signature: Signature) -> bytes:
    """The elements of a BYTES input, packed; sets its shape."""
    content_type = tensor.parameters[_CONTENT_TYPE].string_param
    elements = list(_elements(owner, memoryview(packed)))
    shape = tuple(tensor.shape)
    if content_type == "np" and shape and shape[-1] > 0 and len(elements) != prod(shape):
        return b"".join(_cut(element, shape[-1]) for element in elements)
    if content_type in _STRINGS:
        tensor.shape[:] = _of_as_many(len(elements), shape, signature.input_names.get(tensor.name))
    given = Tensor(tensor.name, Datatype.BYTES, (len(elements),), memoryview(pack_bytes(elements)))
    if signature.elsewhere:
        return bytes(given.view)
    del tensor.parameters[_CONTENT_TYPE]
    return bytes(_decoded(replace(given, parameters={_CONTENT_TYPE: content_type})).view)


def _cut(element: bytes, size: int) -> bytes:
    """``element`` in elements of ``size`` bytes, packed, without an object for each: there may be one per
    byte."""
    count, rest = divmod(len(element), size)
    if not count:
        return pack_bytes([element])
    whole = np.empty((count, 4 + size), np.uint8)
    whole[:, :4] = np.frombuffer(struct.pack("<I", size), np.uint8)
    whole[:, 4:] = np.frombuffer(element, np.uint8, count * size).reshape(count, size)
    return whole.tobytes() + (pack_bytes([element[-rest:]]) if rest else b"")


def _elements(owner: str, packed: memoryview) -> Iterator[bytes]:
    start = 0
    while start < len(packed):
        try:
            (size,) = struct.unpack_from("<I", packed, start)
        except struct.error:
            size = len(packed)
        end = start + 4 + size
        if end > len(packed):
            raise invalid_tensor(f"{owner}: an element of its BYTES is longer than what is there")
        yield bytes(packed[start + 4 : end])
        start = end


# --- streams


def _encode_bare(form: stream_grpc.Form, response: InferResponse) -> GrpcAnswer | None:
    """An answer without a wrapper; nothing for the bare final flag. An error is the status of the call."""
    if response.error is not None:
        return fail(GrpcRequest(stream_grpc.METHOD, b""), None, response.error)
    if response.final and not response.outputs:
        return None
    return encode_infer(form.each, response)


_STREAM: Action[GrpcAnswer] = Action(Operation.INFER_STREAM, _encode_bare, stream_grpc.decode)


def _open_stream(request: GrpcRequest) -> Opened[GrpcAnswer]:
    return replace(stream_grpc.open_stream_infer(request), action=_STREAM)


STREAM_ENDPOINT = replace(stream_grpc.STREAM_ENDPOINT, open=_open_stream, fail=fail)


def _decode_bare(placements: Mapping[str, SharedMemoryRef], answer: GrpcAnswer) -> tuple[InferResponse]:
    # only the end of the stream marks the last one
    return (replace(decode_reply(placements, answer), final=False),)


STREAM_CALL: UpstreamCall[GrpcRequest, GrpcAnswer] = UpstreamCall(stream_grpc.encode_call, _decode_bare)
