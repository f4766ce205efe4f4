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

_PLACES = 0x40
"""Set in the kind if the values are a pair with the places of tensors."""

Places = list[tuple[int, ...]]
"""The tensors of a record that lie in the arena, each an ``Extent``; values refer to them by index."""

Views = Sequence[memoryview]
"""The same as the reader sees them: a record that is dropped frees its memory."""

_INLINE_BYTES = 2048
"""A tensor up to this size is among the values: a place in the arena costs more than the copies."""

_MOST_VALUES = RECORD_BYTES - _HEADER.size

_DATATYPES = tuple(Datatype)
_NUMBERS: Mapping[Datatype, int] = {datatype: number for number, datatype in enumerate(_DATATYPES)}

_CODES: Mapping[int, ErrorCode] = {code.value: code for code in ErrorCode}

_sequence = attrgetter("id", "start", "end")


def send(channel: Channel, kind: int, number: int, values: Any, places: Places | None = None) -> None:
    """Send ``values``, which ``marshal`` takes. Raises OVERLOADED."""
    if places:
        kind |= _PLACES
        values = values, places
    body = marshal.dumps(values)
    if len(body) <= _MOST_VALUES:
        channel.send(_HEADER.pack(kind, number), body)
        return
    place = _PLACE.pack(*_placed(channel, memoryview(body), places or []))
    channel.send(_HEADER.pack(kind | _ELSEWHERE, number), place)


def read(channel: Channel, record: bytes) -> tuple[int, int, Any, Views]:
    """The kind, the number and the values of a record, and its tensors in the arena."""
    kind, number = _HEADER.unpack_from(record)
    body: bytes | memoryview = memoryview(record)[_HEADER.size :]
    if kind & _ELSEWHERE:
        body = channel.view(Extent(*_PLACE.unpack(body)))
    # written by another process of this server
    values = marshal.loads(body)  # noqa: S302
    if not kind & _PLACES:
        return kind & ~_ELSEWHERE, number, values, ()
    values, places = values
    views = [channel.view(Extent(*place)) for place in places]
    return kind & ~(_ELSEWHERE | _PLACES), number, values, views


def plain_request(
    channel: Channel, request: InferRequest, model: str, headers: bool, places: Places
) -> object:
    """The values of ``request`` to ``model``, with the caller's ``headers`` or without. Adds to ``places``.
    Raises OVERLOADED."""
    context, outputs, sequence = request.context, request.outputs, request.sequence
    return (
        model,
        _plain_tensors(channel, request.inputs, places),
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


def read_request(values: Any, views: Views) -> InferRequest:
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
        _tensors(inputs, views),
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


def plain_response(
    channel: Channel, response: InferResponse, request: InferRequest, places: Places
) -> object:
    """The values of ``response`` to ``request``, with the times of its stages. An output that is an input is
    not sent back. Adds to ``places``. Raises OVERLOADED."""
    return (
        response.model,
        _plain_tensors(channel, response.outputs, places, request.inputs),
        response.version,
        response.id,
        dict(response.parameters),
        response.final,
        None if response.error is None else plain_error(response.error),
        response.ordered,
        request.context.timings,
        request.context.ended,
    )


def read_response(
    values: Any, views: Views, inputs: Sequence[Tensor]
) -> tuple[InferResponse, Mapping[str, int], Mapping[str, int]]:
    """The inverse of :func:`plain_response`: the response, the timings and the ends of their stages;
    ``inputs`` are those sent."""
    model, outputs, version, id_, parameters, final, error, ordered, timings, ended = values
    failure = None if error is None else read_error(error)
    tensors = _tensors(outputs, views, inputs)
    response = InferResponse(model, tensors, version, id_, parameters, final, failure, ordered)
    return response, timings, ended


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


def _plain_tensors(
    channel: Channel, tensors: Sequence[Tensor], places: Places, known: Sequence[Tensor] = ()
) -> list[tuple[object, ...]]:
    """The values of ``tensors``. The data are bytes, an index of ``places``, or the complement of an index of
    ``known``, which the reader has."""
    plain: list[tuple[object, ...]] = []
    for tensor in tensors:
        view = tensor.view
        data = view if len(view) <= _INLINE_BYTES else _large(channel, view, places, known)
        plain.append((tensor.name, _NUMBERS[tensor.datatype], tensor.shape, data))
    return plain


def _large(channel: Channel, data: memoryview, places: Places, known: Sequence[Tensor]) -> int:
    same = _same(data, known)
    if same is not None:
        return ~same
    places.append(_placed(channel, data, places))
    return len(places) - 1


def _same(data: memoryview, known: Sequence[Tensor]) -> int | None:
    """Which of ``known`` has these ``data`` in the same memory."""
    for index, tensor in enumerate(known):
        # each large one that was received is all of its own block
        if tensor.view.obj is data.obj and len(tensor.view) == len(data):
            return index
    return None


def _tensors(
    plain: Sequence[tuple[Any, ...]], views: Views, known: Sequence[Tensor] = ()
) -> tuple[Tensor, ...]:
    return tuple(
        [Tensor(name, _DATATYPES[of], shape, _data(data, views, known)) for name, of, shape, data in plain]
    )


def _data(data: bytes | int, views: Views, known: Sequence[Tensor]) -> memoryview:
    if isinstance(data, bytes):
        return memoryview(data)
    return views[data] if data >= 0 else known[~data].view


def _placed(channel: Channel, data: memoryview, others: Places) -> tuple[int, ...]:
    """The place of ``data``. Raises OVERLOADED; the record with the ``others`` is then not sent."""
    place = channel.place(data)
    if place is None:
        for ticket, *_ in others:
            channel.arena.withdraw(ticket)
        raise InferenceError(
            ErrorCode.OVERLOADED,
            f"no shared memory for {len(data)} bytes: {channel.arena.used_bytes} are in flight",
        )
    return tuple(place)
