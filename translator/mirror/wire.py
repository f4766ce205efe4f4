"""The protocol between the daemon and the mirror process: copies one way, findings the other.

Both ends run the same version. The daemon's end must be cheap, so it packs many copies at once: plain values
and small tensors marshalled, then the bytes of large tensors."""

from __future__ import annotations

import asyncio
import marshal
import pickle
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar

from interlingua.protocols.wire import Buffer
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Parameter,
    RequestedOutput,
    SharedMemoryRef,
    Tensor,
)
from interlingua.schemas import Sequence as TensorSequence
from interlingua.schemas.datatypes import DATATYPES, Datatype
from interlingua.schemas.trace import Trace
from interlingua.translator.mirror.comparison import Copy
from interlingua.translator.mirror.findings import Findings
from interlingua.translator.recording.record import Record, RecordedAnswer

T = TypeVar("T")

COPIES = struct.Struct("<QQ")
"""The prefix of copies: the size of the marshalled part, and of the large tensors after it."""

_SIZE = struct.Struct("<Q")
"""The prefix of findings: their size."""

_LARGE = 1 << 16
"""A tensor from this size on is sent after the marshalled part: a copy would cost more."""

_NO_HEADERS: Mapping[int, Sequence[str]] = {}

_NAMES: Mapping[Datatype, str] = {datatype: name for name, datatype in DATATYPES.items()}


class Gathered(Generic[T]):
    """Batches the items of ``secs``, or ``most`` of them, into one call of ``send``: every call has a fixed
    cost. Use on one event loop."""

    def __init__(self, send: Callable[[list[T]], None], secs: float, most: int) -> None:
        self._send = send
        self._secs = secs
        self._most = most
        self._items: list[T] = []
        self._timer: asyncio.Handle | None = None
        self._soon = False

    def add(self, item: T, *, soon: bool = False) -> None:
        """Send ``item`` with the next batch, in order; ``soon``: at the end of this turn of the loop."""
        self._items.append(item)
        soon = soon or not self._secs or len(self._items) >= self._most
        if self._timer is None or (soon and not self._soon):
            if self._timer is not None:
                self._timer.cancel()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_soon(self.flush) if soon else loop.call_later(self._secs, self.flush)
            self._soon = soon

    def flush(self) -> None:
        """Send what there is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._items:
            items, self._items = self._items, []
            self._send(items)


# --- copies


def pack_copies(
    copies: Iterable[tuple[int, Copy]], headers: Mapping[int, Sequence[str]] = _NO_HEADERS
) -> list[Buffer]:
    """The message for ``copies``, each with the number of its mirror. ``headers`` names the headers to
    include, by mirror. Raises ``ValueError`` if a copy cannot be marshalled."""
    large: list[Buffer] = []
    body = marshal.dumps([(mirror, _plain(copy, large, headers.get(mirror, ()))) for mirror, copy in copies])
    return [COPIES.pack(len(body), sum([len(memoryview(part)) for part in large])) + body, *large]


def read_copies(body: bytes, marshalled: int) -> list[tuple[int, Copy]]:
    """The inverse of ``pack_copies``: ``body`` is the message without its prefix; the first ``marshalled``
    bytes precede the large tensors."""
    view = memoryview(body)
    large = _LargeTensors(view[marshalled:])
    # sent by the daemon over a private socket pair
    plain = marshal.loads(view[:marshalled])  # noqa: S302
    return [(mirror, _copy(values, large)) for mirror, values in plain]


class _LargeTensors:
    """Reads large tensors, in order."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def tensors(self, plain: Iterable[tuple[Any, ...]]) -> tuple[Tensor, ...]:
        return tuple(
            [Tensor(name, DATATYPES[of], shape, self._view(data)) for name, of, shape, data in plain]
        )

    def _view(self, data: bytes | int) -> memoryview:
        if isinstance(data, bytes):
            return memoryview(data)
        start, self._at = self._at, self._at + data
        return self._data[start : self._at]


_OF_A_RECORD = attrgetter("began_unix_ns", "dialect", "listener", "streamed", "max_batch_size")
_OF_A_TRACE = attrgetter("trace_id", "parent_id", "flags", "tracestate", "span_id")
_OF_A_SEQUENCE = attrgetter("id", "start", "end")
_OF_A_PLACEMENT = attrgetter("region", "offset", "size")


def _plain(copy: Copy, large: list[Buffer], names: Sequence[str]) -> tuple[object, ...]:
    record = copy.record
    request, answer, context = record.request, record.answer, record.request.context
    return (
        copy.nbytes,
        copy.secs,
        None if copy.trace is None else _OF_A_TRACE(copy.trace),
        *_OF_A_RECORD(record),
        (
            request.model,
            _tensors(request.inputs, large),
            None if request.outputs is None else [_requested(output) for output in request.outputs],
            request.version,
            request.id,
            dict(request.parameters),
            None if request.sequence is None else _OF_A_SEQUENCE(request.sequence),
            request.priority,
            request.timeout_us,
            (
                context.traceparent,
                context.tracestate,
                context.timings,
                {name: context.headers[name] for name in names if name in context.headers},
            ),
            None if request.wire_form is None else pickle.dumps(request.wire_form),
            request.answers,
        ),
        (
            answer.answered_by,
            [_response(response, large) for response in answer.responses],
            _error(answer.error),
            answer.elapsed_ns,
            answer.cut,
        ),
    )


def _copy(plain: tuple[Any, ...], large: _LargeTensors) -> Copy:
    nbytes, secs, trace, began_unix_ns, dialect, listener, streamed, max_batch_size, sent, answered = plain
    request = _read_request(sent, large)
    by, responses, error, elapsed_ns, cut = answered
    given = tuple([_read_response(response, large) for response in responses])
    answer = RecordedAnswer(by, given, _read_error(error), elapsed_ns, cut)
    flags = {"streamed": streamed, "max_batch_size": max_batch_size}
    record = Record(began_unix_ns, request, dialect, listener, answer, **flags)
    return Copy(record, nbytes, secs, None if trace is None else Trace(*trace))


def _read_request(plain: tuple[Any, ...], large: _LargeTensors) -> InferRequest:
    model, inputs, outputs, version, id_, parameters, sequence, priority, timeout_us, *more = plain
    context, form, answers = more
    traceparent, tracestate, timings, headers = context
    return InferRequest(
        model,
        large.tensors(inputs),
        None if outputs is None else tuple([_read_requested(*output) for output in outputs]),
        version,
        id_,
        parameters,
        None if sequence is None else TensorSequence(*sequence),
        priority,
        timeout_us,
        Context(traceparent=traceparent, tracestate=tracestate, timings=timings, headers=headers),
        # a codec may store any type
        None if form is None else pickle.loads(form),  # noqa: S301
        answers,
    )


def _tensors(tensors: Sequence[Tensor], large: list[Buffer]) -> list[tuple[object, ...]]:
    plain: list[tuple[object, ...]] = []
    for tensor in tensors:
        view = tensor.view
        if len(view) >= _LARGE:
            large.append(view)
        data = len(view) if len(view) >= _LARGE else view
        plain.append((tensor.name, _NAMES[tensor.datatype], tensor.shape, data))
    return plain


def _requested(output: RequestedOutput) -> tuple[object, ...]:
    placement = None if output.placement is None else _OF_A_PLACEMENT(output.placement)
    return output.name, output.classification, placement, dict(output.parameters)


def _read_requested(
    name: str, classes: int, at: tuple[str, int, int] | None, parameters: dict[str, Parameter]
) -> RequestedOutput:
    return RequestedOutput(name, classes, None if at is None else SharedMemoryRef(*at), parameters)


def _response(response: InferResponse, large: list[Buffer]) -> tuple[object, ...]:
    return (
        response.model,
        _tensors(response.outputs, large),
        response.version,
        response.id,
        dict(response.parameters),
        response.final,
        _error(response.error),
    )


def _read_response(plain: tuple[Any, ...], large: _LargeTensors) -> InferResponse:
    model, outputs, version, id_, parameters, final, error = plain
    return InferResponse(model, large.tensors(outputs), version, id_, parameters, final, _read_error(error))


def _error(error: InferenceError | None) -> tuple[object, ...] | None:
    if error is None:
        return None
    details = {key: str(value) for key, value in error.details.items()}
    return error.code.name, error.message, error.origin, error.retryable, details


def _read_error(plain: tuple[Any, ...] | None) -> InferenceError | None:
    if plain is None:
        return None
    code, message, origin, retryable, details = plain
    return InferenceError(ErrorCode[code], message, origin=origin, retryable=retryable, details=details)


# --- findings


def pack_findings(findings: Mapping[int, Findings]) -> bytes:
    body = pickle.dumps(findings)
    return _SIZE.pack(len(body)) + body


class FindingsReader:
    """Splits a byte stream into messages of ``pack_findings``."""

    def __init__(self) -> None:
        self._got = bytearray()

    def feed(self, data: bytes) -> Iterator[Mapping[int, Findings]]:
        """The findings that ``data`` completes."""
        got = self._got
        got += data
        while len(got) >= _SIZE.size:
            end = _SIZE.size + _SIZE.unpack_from(got)[0]
            if len(got) < end:
                return
            body = bytes(got[_SIZE.size : end])
            del got[:end]
            # sent by the mirror process
            yield pickle.loads(body)  # noqa: S301
