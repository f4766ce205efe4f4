"""The server's side of a worker process: starts it, sends it requests, receives its answers.

The first word of a message is its kind. To a worker: ``load``, then ``run`` with the requests of one
execution, ``answer`` to its calls, and ``forget`` with the number of an arena that has ended. From it:
``loaded`` with the completed configuration or ``failed`` with the reason, ``response``, ``idle`` when a run
has ended before its last answer, ``call`` of another model, ``uncall`` to cancel it, and ``log``. If requests
iterate, ``idle`` states the room for more of them, and ``room`` its changes. A request has a *slot*, eight
bytes in a shared page: how many of its responses were taken, or that it is cancelled.

Everything but starting and stopping happens on the calling event loop, which may be another one later.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from interlingua.runtime.backends import Answers, Job, RequestInstance
from interlingua.runtime.models.instance_answer import InstanceAnswer
from interlingua.runtime.python_worker import channel, launch, packing, regions
from interlingua.runtime.python_worker.arenas import SharedArenas
from interlingua.runtime.python_worker.codes import error_of
from interlingua.runtime.python_worker.connection import CANCELLED
from interlingua.runtime.python_worker.outgoing import Outgoing
from interlingua.runtime.python_worker.parameters import read_parameters
from interlingua.runtime.python_worker.triton_python_backend_utils import TritonError
from interlingua.runtime.python_worker.worker_call import WorkerCall
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    Tensor,
    invalid_tensor,
    model_failed,
    unavailable,
)
from interlingua.schemas.datatypes import DATATYPES
from interlingua.schemas.messages import SEQUENCE_FLAGS

_SLOTS = 512
_LEVELS = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO}

_log = logging.getLogger(__name__)


class WorkerError(Exception):
    """A worker that did not start; the message is the model's own reason."""


class Worker:
    """A process that has loaded a model. Starting it blocks until it has. It is a ``Place`` of its instance:
    ``promised`` while it is claimed. ``on_idle`` is called when it can be claimed again, ``on_lost`` once
    when it has exited, ``check`` with every answer and the requested outputs. ``called`` are the instances
    that its calls wait for now. Raises :class:`WorkerError` with the model's reason."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.on_idle: Callable[[], None] = lambda: None
        self.on_lost: Callable[[Worker], None] = lambda worker: None
        self.check: Callable[[InstanceAnswer, tuple[str, ...]], None] = lambda answer, outputs: None
        self.config: dict[str, Any] = {}
        self.lost = False
        self.promised = False
        self._instance = settings["instance"]
        self.running = False
        self._room = _SLOTS
        self._calls: dict[int, WorkerCall | None] = {}
        self._free = list(range(_SLOTS))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._frames = channel.ChannelReader()
        pages = [regions.make_page() for _ in range(3)]
        self._page = regions.map_page(pages[0])
        self._slots = memoryview(self._page).cast("Q")
        self._pool = regions.RegionPool(regions.map_page(pages[1]))
        self._views = regions.RegionViews(regions.map_page(pages[2]))
        self._arenas = SharedArenas(self._arena_ended)
        self._held: dict[int, tuple[Tensor, ...]] = {}
        self.calls = Outgoing(self._answer, self._contexts, self)
        self.called: list[RequestInstance] = []
        self._held_up = False
        self._written = asyncio.Event()
        self._sock, child_end = socket.socketpair()
        self._outgoing = channel.ChannelWriter(self._sock)
        try:
            self._process = launch.start([child_end.fileno(), *pages])
        finally:
            child_end.close()
            for page in pages:
                os.close(page)
        # also at the end of the interpreter, for workers that still run
        self._stop = weakref.finalize(self, launch.end, self._process, self._sock)
        try:
            self._load(settings)
        except WorkerError:
            self.stop()
            raise
        self._sock.setblocking(False)

    @property
    def idle(self) -> bool:
        """Whether it can take a request now."""
        return not (self.running or self.lost or self.promised) and bool(self._free)

    @property
    def held(self) -> int:
        return len(self._calls)

    def attach(self) -> None:
        """Listen to the worker on the running loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop and not self.lost:
            self.detach()
            self._loop = loop
            self._written = asyncio.Event()
            loop.add_reader(self._sock, self._readable)
            self._write()

    def detach(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
        self._loop = None
        self._held_up = False

    @property
    def room(self) -> int:
        return min(len(self._free), self._room)

    def run(self, jobs: Sequence[Job]) -> list[Answers]:
        """See ``Place``. A job may fail with UNAVAILABLE if the process has exited, MODEL_FAILED if there is
        no memory for its inputs, INVALID_TENSOR for an id that is not text."""
        self.promised = False
        self.attach()
        calls = [WorkerCall(job.request, job.outputs, self._took, self._abandon) for job in jobs]
        requests = []
        inputs: dict[int, tuple[Tensor, ...]] = {}
        tensors: list[packing.NamedPart] = []
        for call, job in zip(calls, jobs, strict=True):
            failure = self._refusal(job.request)
            if failure is not None:
                call.fail(failure)
                continue
            call.slot = self._free.pop()
            self._slots[call.slot] = 0
            self._calls[call.slot] = call
            inputs[call.slot] = job.inputs
            requests.append(_request(call.slot, job))
            tensors += map(_part, job.inputs)
        if requests:
            self.running = True
            try:
                packed, placed = packing.pack_inputs(tensors, self._pool, self._arenas)
            except (MemoryError, OSError) as error:
                self._not_sent(calls, f"no shared memory for the inputs: {error}")
            else:
                if placed:
                    # until the first response: what sends it has read the inputs of the run
                    self._held.update(inputs)
                frame = channel.encode(
                    ["run", requests, packed.value], packed.payload, len(packed.descriptors)
                )
                self._send(frame, packed.descriptors)
        else:
            self.on_idle()
        return list(calls)

    def release(self) -> None:
        self.promised = False
        self.on_idle()

    def fail_rest(self) -> None:
        """Fail the remaining requests of a stopped worker."""
        gone = f"'{self._instance}' was unloaded before it had answered the request"
        for call in self._calls.values():
            if call is not None:
                call.fail(unavailable(gone))

    def stop(self) -> None:
        """Let the model finalize, end the process and free the shared memory that has no views. Blocks."""
        # new requests are refused
        self.lost = True
        self._stop()
        self._held.clear()
        self._pool.close()
        self._views.close()
        if not self._calls:
            self._slots.release()
            self._page.close()

    # --- how it is done

    def _refusal(self, request: InferRequest) -> InferenceError | None:
        if self.lost:
            return unavailable(f"the process of '{self._instance}' has ended")
        if request.context.cancel.cancelled:
            return InferenceError(ErrorCode.CANCELLED, "the request was cancelled")
        if not self._free:
            return InferenceError(ErrorCode.OVERLOADED, f"'{self._instance}' has too many requests open")
        named = {"request id": request.id, "sequence id": request.sequence.id if request.sequence else 0}
        for what, value in named.items():
            try:
                str(value).encode()
            except UnicodeEncodeError as error:
                return invalid_tensor(f"the {what} is not text: {error}")
        return None

    def _not_sent(self, calls: Sequence[WorkerCall], why: str) -> None:
        for call in calls:
            if self._calls.pop(call.slot, None) is not None:
                self._free.append(call.slot)
                call.fail(model_failed(why))
        self._ended_run()

    def _took(self, call: WorkerCall, count: int) -> None:
        """Report to the model how many responses of ``call`` were taken."""
        # the slot may be another call's by now
        if self._calls.get(call.slot) is call:
            self._slots[call.slot] = count

    def _abandon(self, call: WorkerCall) -> None:
        """The caller of ``call`` has disconnected."""
        if self._calls.get(call.slot) is call:
            self._slots[call.slot] = CANCELLED
            self._calls[call.slot] = None
            if self._contexts() is None:
                self.calls.cancel()

    def _load(self, settings: Mapping[str, Any]) -> None:
        try:
            self._sock.sendall(channel.encode(["load", settings]))
        except ConnectionError:
            # it has ended already, as reading will show
            _log.debug("worker exited before the load request")
        while True:
            data, descriptors = channel.receive(self._sock)
            if not data:
                how = launch.how_ended(self._process)
                raise WorkerError(f"the process of '{self._instance}' ended while loading: {how}")
            for frame in self._frames.feed(data, descriptors):
                kind, *rest = frame.value
                if kind == "loaded":
                    self.config = rest[0]
                    return
                if kind == "failed":
                    raise WorkerError(rest[0])
                self._write_log(*rest)

    def _send(self, data: bytes, descriptors: list[int]) -> None:
        first = not self._outgoing.waiting
        self._outgoing.put(data, descriptors)
        if first:
            self._write()

    def _write(self) -> None:
        try:
            sent = self._outgoing.flush()
        except OSError:
            self._lose()
            return
        if not sent:
            if self._loop is not None and not self._held_up:
                self._held_up = True
                self._loop.add_writer(self._sock, self._write)
            return
        if self._held_up and self._loop is not None:
            self._held_up = False
            self._loop.remove_writer(self._sock)
            self._written.set()

    def _readable(self) -> None:
        try:
            data, descriptors = channel.receive(self._sock)
        except BlockingIOError:
            return
        if not data:
            self._lose()
            return
        for frame in self._frames.feed(data, descriptors):
            kind = frame.value[0]
            if kind == "response":
                self._take(frame)
            elif kind == "idle":
                (self._room,) = frame.value[1:] or (_SLOTS,)
                self._ended_run()
            elif kind == "room":
                self._room = frame.value[1]
            elif kind == "call":
                self.calls.start(frame.value[1:], self._tensors(frame.value[-1], frame))
            elif kind == "uncall":
                self.calls.stop(frame.value[1])
            else:
                self._write_log(*frame.value[1:])

    def _take(self, frame: channel.ChannelFrame) -> None:
        slot, packed, parameters, error, final, ends_run = frame.value[1:]
        outputs = self._tensors(packed, frame)
        self._held.pop(slot, None)
        call = self._calls.get(slot)
        if final and slot in self._calls:
            del self._calls[slot]
            self._free.append(slot)
        if call is not None:
            failure = None if error is None else error_of(*error)
            answer = InstanceAnswer(outputs, {}, failure, final, call.started, time.monotonic_ns())
            try:
                answer.parameters = read_parameters(parameters)
            except ValueError as wrong:
                answer.outputs, answer.error = (), error_of(0, f"a response has {wrong}")
            self.check(answer, call.outputs)
            call.put(answer)
        if ends_run:
            self._ended_run()
        elif final and not self.running:
            # a request may wait for a free slot
            self.on_idle()

    def _tensors(self, packed: Sequence[Any], frame: channel.ChannelFrame) -> tuple[Tensor, ...]:
        return tuple(
            Tensor(name, DATATYPES[kind], tuple(shape), view.toreadonly())
            for name, kind, shape, view in packing.unpack(packed, frame, self._views)
        )

    async def _answer(
        self,
        number: int,
        tensors: Sequence[Tensor],
        parameters: Mapping[str, Any],
        error: tuple[int, str] | None,
        final: bool,
    ) -> None:
        if self.lost:
            return
        try:
            packed = packing.pack([_part(each) for each in tensors], self._pool)
        except (MemoryError, OSError) as failure:
            error = (TritonError.INTERNAL, f"no shared memory for the outputs: {failure}")
            packed = packing.pack([], self._pool)
        value = ["answer", number, packed.value, json.dumps(dict(parameters)), error, final]
        self._send(channel.encode(value, packed.payload, len(packed.descriptors)), packed.descriptors)
        while self._outgoing.waiting:
            self._written.clear()
            await self._written.wait()

    def _contexts(self) -> list[Context] | None:
        """The contexts of its requests; None if all callers have disconnected."""
        contexts = [call.context for call in self._calls.values() if call is not None]
        return contexts if contexts or not self._calls else None

    def _ended_run(self) -> None:
        self.running = False
        self.on_idle()

    def _arena_ended(self, number: int) -> None:
        """Have the worker unmap an arena. Called in any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._forget, number)

    def _forget(self, number: int) -> None:
        if not self.lost:
            self._send(channel.encode(["forget", number]), [])

    def _lose(self) -> None:
        if self.lost:
            return
        self.detach()
        self.lost = True
        how = launch.how_ended(self._process)
        reason = f"the process of '{self._instance}' ended while it had the request: {how}"
        self._outgoing.drop()
        for call in self._calls.values():
            if call is not None:
                call.fail(model_failed(reason))
        self._calls.clear()
        self._held.clear()
        self.calls.close()
        self.on_lost(self)

    def _write_log(self, level: str, text: str) -> None:
        _log.log(_LEVELS.get(level, logging.DEBUG), "%s", text, extra={"facts": {"instance": self._instance}})


def _part(tensor: Tensor) -> packing.NamedPart:
    return tensor.name, tensor.datatype.value, tensor.shape, tensor.view


def _request(slot: int, job: Job) -> list[Any]:
    """The message of ``job``, whose tensors follow those of the jobs before it."""
    request = job.request
    sequence, parameters = request.sequence, request.parameters
    start, end = (sequence.start, sequence.end) if sequence else map(parameters.__contains__, SEQUENCE_FLAGS)
    if not parameters.keys().isdisjoint(SEQUENCE_FLAGS):
        parameters = {key: value for key, value in parameters.items() if key not in SEQUENCE_FLAGS}
    return [
        slot,
        request.id,
        sequence.id if sequence else 0,
        start + 2 * end,
        request.timeout_us,
        json.dumps(dict(parameters)) if parameters else "{}",
        job.outputs,
        request.answers == "many",
        len(job.inputs),
    ]
