"""The records of a channel: requests and responses of the IR.

A record has its kind, the number of its request, plain values, and the places of large tensors in the arena,
to which the values refer; small tensors are among the values. A record that does not fit into a slot lies in
the arena itself. Both ends run the same version of this module.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from interlingua.runtime.ring.channel import Channel
from interlingua.runtime.ring.ring import SLOT_BYTES
from interlingua.schemas import (
    CancelToken,
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

_ELSEWHERE = -1
"""The kind of a record whose values are the place of the record itself, in the arena."""

_FORMAT = 2
"""The version of marshal's format: later ones look for equal references, of which records have none."""

Places = list[tuple[int, ...]]
"""The places of a record's large tensors, as of ``Channel.place``; values refer to them by index."""

Views = Sequence[memoryview]
"""The same as the reader sees them: a record that is dropped frees its memory."""

_NOWHERE: Places = []

Record = tuple[int, int, Any, Views]
"""The kind, the number of the request, the values and the tensors in the arena."""

_INLINE_BYTES = 2048
"""A tensor up to this size is among the values: a place in the arena costs more than the copies."""

_DATATYPES = tuple(Datatype)
_NUMBERS: Mapping[Datatype, int] = {datatype: number for number, datatype in enumerate(_DATATYPES)}

_CODES: Mapping[int, ErrorCode] = {code.value: code for code in ErrorCode}

_sequence = attrgetter("id", "start", "end")


def send(channel: Channel, kind: int, number: int, values: Any, places: Places = _NOWHERE) -> None:
    """Send ``values``, which ``marshal`` takes. Raises OVERLOADED."""
    record = marshal.dumps((kind, number, values, places), _FORMAT)
    if len(record) > SLOT_BYTES:
        place = _placed(channel, memoryview(record), places)
        record = marshal.dumps((_ELSEWHERE, number, place, _NOWHERE), _FORMAT)
    channel.send(record)


def read(channel: Channel, record: Any) -> Record:
    """The parts of a ``record`` from ``channel``."""
    if record[0] == _ELSEWHERE:
        # written by another process of this server
        record = marshal.loads(channel.view(record[2]))  # noqa: S302
    kind, number, values, places = record
    return kind, number, values, [channel.view(place) for place in places] if places else ()


def plain_request(
    channel: Channel, request: InferRequest, model: str, headers: bool, places: Places
) -> object:
    """The values of ``request`` to ``model``, with the caller's ``headers`` or without. Adds to ``places``.
    Raises OVERLOADED."""
    context, outputs, sequence = request.context, request.outputs, request.sequence
    of_request = (
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
    )
    of_context = (
        context.deadline,
        context.traceparent,
        context.tracestate,
        context.peer,
        context.copied,
        dict(context.headers) if headers else None,
    )
    return of_request, of_context


def read_request(values: Any, views: Views) -> InferRequest:
    """The inverse of :func:`plain_request`."""
    of_request, (deadline, traceparent, tracestate, peer, copied, headers) = values
    model, inputs, outputs, version, id_, parameters, sequence, priority, timeout_us, answers = of_request
    context = Context(deadline, CancelToken(), traceparent, tracestate, peer, headers or {})
    context.copied = copied
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
        parameters = dict(tensor.parameters) if tensor.parameters else None
        plain.append((tensor.name, _NUMBERS[tensor.datatype], tensor.shape, data, parameters))
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
    tensors = []
    for name, of, shape, data, parameters in plain:
        if data.__class__ is bytes:
            view = memoryview(data)
        else:
            view = views[data] if data >= 0 else known[~data].view
        tensors.append(Tensor(name, _DATATYPES[of], shape, view, parameters))
    return tuple(tensors)


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
