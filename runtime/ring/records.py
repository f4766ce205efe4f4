"""The records of a channel: requests and responses of the IR.

A record is a header and marshalled plain values. Small tensors are among the values; large ones lie in the
arena, and the values have their places. Values that do not fit into a slot lie in the arena as well. Both
ends run the same version of this module.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping, Sequence
from operator import attrgetter
from struct import Struct
from typing import Any

from interlingua.runtime.ring.arena import Extent
from interlingua.runtime.ring.channel import Channel
from interlingua.runtime.ring.ring import RECORD_BYTES
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    RequestedOutput,
    Tensor,
)
from interlingua.schemas import (
    Sequence as TensorSequence,
)
from interlingua.schemas.datatypes import Datatype

INFER, STREAM, CANCEL, TAKEN, CALL, SEEN, ANSWER, PART, FAILURE, RESULT, EVENT = range(11)
"""Kinds. To the runtime: a request for one answer or for a stream, its cancellation, a response of the stream
that the caller has taken, a call by name, a notice that has taken effect. From the runtime: the answer, a
response of the stream, the error of a request or call, the result of a call, a notice."""

_HEADER = Struct("<BxxxxxxxQ")
"""The kind of the record, and the number of the request."""

_ELSEWHERE = 0x80
"""Set in the kind if the place of the values follows, in the arena."""
_PLACE = Struct("<QQQ")

_INLINE_BYTES = 2048
"""A tensor up to this size is among the values: a place in the arena costs more than the copies."""

_MOST_VALUES = RECORD_BYTES - _HEADER.size

_DATATYPES = tuple(Datatype)
_NUMBERS: Mapping[Datatype, int] = {datatype: number for number, datatype in enumerate(_DATATYPES)}

_CODES: Mapping[int, ErrorCode] = {code.value: code for code in ErrorCode}

_sequence = attrgetter("id", "start", "end")


def send(channel: Channel, kind: int, number: int, values: Any) -> None:
    """Send ``values``, which ``marshal`` takes. Raises OVERLOADED."""
    body = marshal.dumps(values)
    if len(body) <= _MOST_VALUES:
        channel.send(_HEADER.pack(kind, number), body)
        return
    channel.send(_HEADER.pack(kind | _ELSEWHERE, number), _PLACE.pack(*_placed(channel, memoryview(body))))


def read(channel: Channel, record: bytes) -> tuple[int, int, Any]:
    """The kind, the number and the values of a record."""
    kind, number = _HEADER.unpack_from(record)
    body: bytes | memoryview = memoryview(record)[_HEADER.size :]
    if kind & _ELSEWHERE:
        body = channel.view(Extent(*_PLACE.unpack(body)))
    # written by another process of this server
    return kind & ~_ELSEWHERE, number, marshal.loads(body)  # noqa: S302


def plain_request(channel: Channel, request: InferRequest, model: str, headers: bool) -> object:
    """The values of ``request`` to ``model``, with the caller's ``headers`` or without. Raises OVERLOADED."""
    context, outputs, sequence = request.context, request.outputs, request.sequence
    return (
        model,
        _plain_tensors(channel, request.inputs),
        None if outputs is None else [(output.name, output.classification) for output in outputs],
        request.version,
        request.id,
        dict(request.parameters),
        None if sequence is None else _sequence(sequence),
        request.priority,
        request.timeout_us,
        request.answers,
        context.deadline,
        context.traceparent,
        context.tracestate,
        context.peer,
        context.copied,
        dict(context.headers) if headers else None,
    )


def read_request(channel: Channel, values: Any) -> InferRequest:
    """The inverse of :func:`plain_request`."""
    model, inputs, outputs, version, id_, parameters, sequence, priority, timeout_us, *more = values
    answers, deadline, traceparent, tracestate, peer, copied, headers = more
    context = Context(
        deadline=deadline, traceparent=traceparent, tracestate=tracestate, peer=peer, copied=copied
    )
    if headers is not None:
        context.headers = headers
    return InferRequest(
        model,
        _tensors(channel, inputs),
        None if outputs is None else tuple([RequestedOutput(*output) for output in outputs]),
        version,
        id_,
        parameters,
        None if sequence is None else TensorSequence(*sequence),
        priority,
        timeout_us,
        context,
        None,
        answers,
    )


def plain_response(channel: Channel, response: InferResponse, timings: Mapping[str, int]) -> object:
    """The values of ``response``, with the ``timings`` of its request. Raises OVERLOADED."""
    return (
        response.model,
        _plain_tensors(channel, response.outputs),
        response.version,
        response.id,
        dict(response.parameters),
        response.final,
        None if response.error is None else plain_error(response.error),
        response.ordered,
        timings,
    )


def read_response(channel: Channel, values: Any) -> tuple[InferResponse, Mapping[str, int]]:
    """The inverse of :func:`plain_response`."""
    model, outputs, version, id_, parameters, final, error, ordered, timings = values
    failure = None if error is None else read_error(error)
    tensors = _tensors(channel, outputs)
    return InferResponse(model, tensors, version, id_, parameters, final, failure, ordered), timings


def plain_error(error: InferenceError) -> tuple[object, ...]:
    """The values of ``error``."""
    details = {key: _plain(value) for key, value in error.details.items()}
    return error.code.value, error.message, error.origin, error.retryable, details, error.begun


def read_error(values: Sequence[Any]) -> InferenceError:
    """The inverse of :func:`plain_error`."""
    code, message, origin, retryable, details, begun = values
    return InferenceError(
        _CODES[code], message, origin=origin, retryable=retryable, details=details, begun=begun
    )


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | float | str) else str(value)


def _plain_tensors(channel: Channel, tensors: Sequence[Tensor]) -> list[tuple[object, ...]]:
    plain: list[tuple[object, ...]] = []
    for tensor in tensors:
        view = tensor.view
        data = view if len(view) <= _INLINE_BYTES else tuple(_placed(channel, view))
        plain.append((tensor.name, _NUMBERS[tensor.datatype], tensor.shape, data))
    return plain


def _tensors(channel: Channel, plain: Sequence[tuple[Any, ...]]) -> tuple[Tensor, ...]:
    return tuple(
        [
            Tensor(
                name,
                _DATATYPES[of],
                shape,
                memoryview(data) if isinstance(data, bytes) else channel.view(Extent(*data)),
            )
            for name, of, shape, data in plain
        ]
    )


def _placed(channel: Channel, data: memoryview) -> Extent:
    place = channel.place(data)
    if place is None:
        raise InferenceError(
            ErrorCode.OVERLOADED,
            f"no shared memory for {len(data)} bytes: {channel.arena.used_bytes} are in flight",
        )
    return place
