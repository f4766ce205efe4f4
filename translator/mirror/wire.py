"""What passes between the daemon and the process that judges for it: copies one way, findings the other.

Both ends are one program. The daemon's is to be cheap, so that many copies are packed in one go: plain values
in marshalled form, small tensors among them, large ones behind.
"""

from __future__ import annotations

import asyncio
import marshal
import pickle
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from interlingua.translator.mirror.findings import Findings
from interlingua.translator.mirror.verdict import Copy
from interlingua.translator.recording.record import Answer, Record

T = TypeVar("T")

COPIES = struct.Struct("<QQ")
"""Before copies: the bytes of what is marshalled, and of the tensors behind it."""

_SIZE = struct.Struct("<Q")
"""Before findings: their bytes."""

_LARGE = 1 << 16
"""From here on a tensor stands behind: to copy less costs less than to send it by itself."""

_GATHER_SECS = 0.01
"""How long what is to be sent waits for more: to pack, to send, and to be woken by it, costs by the time."""

_NO_HEADERS: Mapping[int, Sequence[str]] = {}

_NAMES: Mapping[Datatype, str] = {datatype: name for name, datatype in DATATYPES.items()}


class Gathered(Generic[T]):
    """Gives what is added within some milliseconds to ``send`` all together. Use on one event loop."""

    def __init__(self, send: Callable[[list[T]], None]) -> None:
        self._send = send
        self._items: list[T] = []

    def add(self, item: T) -> None:
        """Have ``item`` sent, after those before it."""
        if not self._items:
            asyncio.get_running_loop().call_later(_GATHER_SECS, self._flush)
        self._items.append(item)

    def _flush(self) -> None:
        items, self._items = self._items, []
        self._send(items)


# --- copies


def pack_copies(
    copies: Iterable[tuple[int, Copy]], headers: Mapping[int, Sequence[str]] = _NO_HEADERS
) -> list[Buffer]:
    """Copies, each with the number of its mirror, to be sent; with each go those of its ``headers`` that have
    a name listed for that mirror. Raises ``ValueError`` where one has no form."""
    large: list[Buffer] = []
    body = marshal.dumps([(mirror, _plain(copy, large, headers.get(mirror, ()))) for mirror, copy in copies])
    return [COPIES.pack(len(body), sum([len(memoryview(part)) for part in large])) + body, *large]


def read_copies(body: bytes, marshalled: int) -> list[tuple[int, Copy]]:
    """What ``pack_copies`` was given, from the bytes behind its first ones, ``marshalled`` of them not those
    of large tensors."""
    view = memoryview(body)
    behind = _Behind(view[marshalled:])
    # from our own process, over a socket that nobody else has
    plain = marshal.loads(view[:marshalled])  # noqa: S302
    return [(mirror, _copy(values, behind)) for mirror, values in plain]


class _Behind:
    """Cuts large tensors."""

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


def _plain(copy: Copy, large: list[Buffer], names: Sequence[str]) -> tuple[object, ...]:
    record = copy.record
    request, answer, context, sequence = record.request, record.answer, record.request.context, None
    if request.sequence is not None:
        sequence = request.sequence.id, request.sequence.start, request.sequence.end
    return (
        copy.nbytes,
        copy.secs,
        record.began_unix_ns,
        record.dialect,
        record.listener,
        record.streamed,
        record.max_batch_size,
        (
            request.model,
            _tensors(request.inputs, large),
            None if request.outputs is None else [_requested(output) for output in request.outputs],
            request.version,
            request.id,
            dict(request.parameters),
            sequence,
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


def _copy(plain: tuple[Any, ...], behind: _Behind) -> Copy:
    nbytes, secs, began_unix_ns, dialect, listener, streamed, max_batch_size, asked, answered = plain
    request = _read_request(asked, behind)
    by, responses, error, elapsed_ns, cut = answered
    given = tuple([_read_response(response, behind) for response in responses])
    answer = Answer(by, given, _read_error(error), elapsed_ns, cut)
    record = Record(
        began_unix_ns,
        request,
        dialect,
        listener,
        answer,
        streamed=streamed,
        max_batch_size=max_batch_size,
    )
    return Copy(record, nbytes, secs)


def _read_request(plain: tuple[Any, ...], behind: _Behind) -> InferRequest:
    model, inputs, outputs, version, id_, parameters, sequence, priority, timeout_us, *more = plain
    context, form, answers = more
    traceparent, tracestate, timings, headers = context
    return InferRequest(
        model,
        behind.tensors(inputs),
        None if outputs is None else tuple([_read_requested(*output) for output in outputs]),
        version,
        id_,
        parameters,
        None if sequence is None else TensorSequence(*sequence),
        priority,
        timeout_us,
        Context(traceparent=traceparent, tracestate=tracestate, timings=timings, headers=headers),
        # what a codec notes is its own, of any type
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
    at = output.placement
    placement = None if at is None else (at.region, at.offset, at.size)
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


def _read_response(plain: tuple[Any, ...], behind: _Behind) -> InferResponse:
    model, outputs, version, id_, parameters, final, error = plain
    return InferResponse(model, behind.tensors(outputs), version, id_, parameters, final, _read_error(error))


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
    """What was found, by the numbers of mirrors, to be sent."""
    body = pickle.dumps(findings)
    return _SIZE.pack(len(body)) + body


class FindingsReader:
    """Cuts what comes into what ``pack_findings`` was given."""

    def __init__(self) -> None:
        self._got = bytearray()

    def feed(self, data: bytes) -> Iterator[Mapping[int, Findings]]:
        """Those that ``data`` completes."""
        got = self._got
        got += data
        while len(got) >= _SIZE.size:
            end = _SIZE.size + _SIZE.unpack_from(got)[0]
            if len(got) < end:
                return
            body = bytes(got[_SIZE.size : end])
            del got[:end]
            # from our own process
            yield pickle.loads(body)  # noqa: S301
