"""The access log: one record for each request, in the words of docs/observability.md.

A request costs the event loop one comparison if it is not recorded. A record is a tuple of what is known when
the request ends; a thread renders and writes it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from interlingua.protocols.transport.allowance import Allowance
from interlingua.protocols.wire import FORWARDED_FOR, REQUEST_ID
from interlingua.runtime.repository.known_models import KnownModels
from interlingua.schemas import Context, ErrorCode, InferenceError, Operation
from interlingua.schemas.bounded_text import shortened
from interlingua.schemas.errors import TRACEBACK
from interlingua.translator.logs import setup as logs
from interlingua.translator.logs.background import BackgroundWriter
from interlingua.translator.logs.output import FileOutput
from interlingua.translator.logs.redaction import redacted

AccessLogMode = Literal["none", "errors", "all"]

ERROR_BURST, ERRORS_PER_SEC = 100, 10.0
"""The records of failed requests at once, and per second, with ``errors``: a flood must not fill the disk."""

KEPT_FAILURES = 50
"""The last failed requests, for operators."""

ERROR_CHARS = 512
"""The longest text of an error in a record."""

_FIELD_CHARS = 200
"""The longest of the other fields that clients choose."""

_LEVELS: Mapping[ErrorCode | None, str] = {
    None: "info",
    ErrorCode.CANCELLED: "info",
    ErrorCode.MODEL_FAILED: "error",
    ErrorCode.BAD_UPSTREAM: "error",
    ErrorCode.INTERNAL: "error",
}
"""By outcome; a warning for all others."""


class RequestOutcome(NamedTuple):
    """How a request has ended: the ``status`` that its transport carries, None without an answer or without
    such a status; the ``failure``, None for success; the ``dialect_status`` that the dialect has for it in
    the answer; the ``traceback`` of an upstream."""

    status: object
    failure: ErrorCode | None = None
    error: str = ""
    dialect_status: object = None
    traceback: str = ""


class Size(NamedTuple):
    """Bytes of messages or bodies; with ``messages`` and ``answers``, those of a whole stream."""

    received: int
    sent: int
    messages: int = 0
    answers: int = 0


class _Record(NamedTuple):
    """``place`` has the fields of the listener and the dialect, ``who`` those of the caller."""

    time: float
    event: str
    place: Mapping[str, str]
    name: str
    operation: Operation | None
    models: tuple[str, str, str, str]
    served_by: tuple[str, str]
    outcome: RequestOutcome
    size: Size
    duration_ns: int
    timings: Mapping[str, int]
    route_ns: int
    read_ns: int
    who: tuple[str, str, str | None, str, str]
    number: int
    suppressed: int
    write_ns: int | None = None


class AccessLog:
    """The access log of a process. ``every``: it has a record of each request; ``errors``: of each that
    fails, within ``allowance``. ``upstream_of`` returns the name of the upstream of a model, empty for a
    local one."""

    def __init__(
        self,
        mode: AccessLogMode = "none",
        upstream_of: Callable[[str], str] = lambda _: "",
        allowance: Allowance | None = None,
        write: Callable[[Sequence[dict[str, Any]]], None] = logs.write,
    ) -> None:
        self.every = self.errors = False
        self.mode = mode
        self._upstream_of = upstream_of
        self._allowance = allowance or Allowance(ERROR_BURST, ERRORS_PER_SEC)
        self._unreported = 0
        self._write = write
        self._writer = BackgroundWriter[_Record](self._write_records)
        self._failures: deque[_Record] = deque(maxlen=KEPT_FAILURES)
        self.recorded = self.suppressed = 0

    @property
    def mode(self) -> AccessLogMode:
        if self.every:
            return "all"
        return "errors" if self.errors else "none"

    @mode.setter
    def mode(self, mode: AccessLogMode) -> None:
        self.every, self.errors = mode == "all", mode != "none"

    @property
    def dropped(self) -> int:
        """The records that found too many others waiting."""
        return self._writer.dropped

    def close(self) -> None:
        """Write what waits."""
        self._writer.close()

    def add(
        self,
        place: Mapping[str, str],
        name: str,
        context: Context,
        outcome: RequestOutcome,
        size: Size,
        requested: tuple[Operation | None, str, str] = (None, "", ""),
        event: str = "request",
    ) -> None:
        """Record a request that has ended just now, if the mode includes it. ``requested`` are its operation,
        model and version."""
        recorded = self.every or (self.errors and self._permits())
        if not recorded and outcome.failure is None:
            return
        unreported = 0
        if recorded:
            unreported, self._unreported = self._unreported, 0
            self.recorded += 1
        now, headers, target = time.monotonic_ns(), context.headers, context.target
        first = next(iter(context.ended), "")
        routed = context.ended[first] - context.timings[first] - context.began if first else 0
        record = _Record(
            time.time(),
            event,
            place,
            name,
            requested[0],
            (requested[1], requested[2], target, context.version),
            (self._upstream_of(target) if target else "", context.upstream),
            outcome,
            size,
            now - context.began if context.began else 0,
            context.timings,
            routed,
            context.received_ns if context.began else 0,
            (
                context.traceparent,
                headers.get(REQUEST_ID, ""),
                context.identity,
                context.peer,
                headers.get(FORWARDED_FOR, ""),
            ),
            context.request_number,
            unreported,
        )
        if outcome.failure is not None:
            self._failures.append(record)
        if recorded and context.reports_write and context.written is None:
            context.written = partial(self._put_written, record, now)
        elif recorded:
            self._writer.put(record)

    def _put_written(self, record: _Record, encoded: int) -> None:
        """Write ``record``, whose answer was ``encoded`` then and is written now."""
        self._writer.put(record._replace(write_ns=time.monotonic_ns() - encoded))

    def failures(self) -> list[dict[str, Any]]:
        """The last requests that have failed, as records, the latest first; whatever the mode is."""
        return [_event(record) for record in reversed(self._failures)]

    def _permits(self) -> bool:
        if self._allowance.spend():
            return True
        self._allowance.tokens += 1
        self.suppressed += 1
        self._unreported += 1
        return False

    def _write_records(self, records: Sequence[_Record]) -> None:
        self._write([_event(record) for record in records])


def access_log(mode: AccessLogMode, path: str | None, catalog: KnownModels) -> AccessLog:
    """The access log of requests for the models in ``catalog``, in the file at ``path`` or in the log of the
    process. Raises ``OSError``."""

    def upstream_of(name: str) -> str:
        model = catalog.models.get(name)
        return "" if model is None or model.upstream is None else model.upstream.name

    if path is None:
        return AccessLog(mode, upstream_of)
    return AccessLog(mode, upstream_of, write=partial(logs.write, output=FileOutput(path)))


@dataclass(frozen=True, slots=True)
class EndpointLog:
    """The access log of one dialect over one transport of a listener, which ``place`` describes. ``label``
    formats the name of a request, ``status`` reads that of an answer. ``dialect_status`` is that of the
    dialect for an error, if it has its own."""

    log: AccessLog
    place: Mapping[str, str]
    label: str
    status: Callable[[Any], object]
    dialect_status: Callable[[InferenceError, Operation | None], object] | None = None

    def refused(
        self,
        request: Any,
        answer: Any,
        error: InferenceError,
        received: int,
        sent: int,
        about: tuple[Operation | None, str, str] = (None, "", ""),
    ) -> None:
        """Record a request that ends before it is opened; ``about`` is as in ``AccessLog.add``."""
        outcome, size = self.outcome(answer, error, about[0]), Size(received, sent)
        self.log.add(self.place, self.label.format(request), request.context, outcome, size, about)

    def outcome(
        self, answer: Any, error: InferenceError | None, operation: Operation | None
    ) -> RequestOutcome:
        """How a request has ended with ``answer``, for ``error``, which is None for success."""
        status = None if answer is None else self.status(answer)
        if error is None:
            return RequestOutcome(status)
        own = self.dialect_status
        in_band = None if own is None else own(error, operation)
        return RequestOutcome(status, error.code, error.message, in_band, error.details.get(TRACEBACK, ""))


def _event(record: _Record) -> dict[str, Any]:
    """The fields of a line; those without a value are absent."""
    outcome, size = record.outcome, record.size
    model, version, target, ran = record.models
    upstream, server = record.served_by
    trace, request_id, identity, peer, forwarded_for = record.who
    fields = {
        **record.place,
        "request": shortened(record.name, _FIELD_CHARS),
        "operation": None if record.operation is None else record.operation.value,
        "model": shortened(model or target, _FIELD_CHARS),
        "version": shortened(ran or version, _FIELD_CHARS),
        "routed_to": target if target != model else None,
        "target": ("upstream" if upstream else "local") if target else None,
        "upstream": upstream,
        "server": server,
        "status": outcome.status,
        "dialect_status": outcome.dialect_status,
        "code": "OK" if outcome.failure is None else outcome.failure.name,
        "error": redacted(shortened(outcome.error, ERROR_CHARS)),
        "exception": redacted(outcome.traceback),
        "messages": size.messages or None,
        "answers": size.answers if size.messages else None,
        "request_bytes": size.received,
        "response_bytes": size.sent,
        "duration_us": record.duration_ns // 1000,
        "read_us": record.read_ns // 1000 if record.read_ns > 0 else None,
        "route_us": record.route_ns // 1000 if record.timings else None,
        **{f"{stage}_us": ns // 1000 for stage, ns in record.timings.items()},
        "write_us": None if record.write_ns is None else record.write_ns // 1000,
        # W3C Trace Context, section 3.2: version-traceid-parentid-flags
        "trace_id": trace[3:35],
        "request_id": shortened(request_id, _FIELD_CHARS),
        "identity": identity,
        "peer": peer,
        "forwarded_for": shortened(forwarded_for, _FIELD_CHARS),
        "number": record.number or None,
        "suppressed": record.suppressed or None,
    }
    return {
        "time": record.time,
        "level": _LEVELS.get(outcome.failure, "warning"),
        "event": record.event,
        "logger": "interlingua.access",
        **{key: value for key, value in fields.items() if value is not None and value != ""},
    }
