"""The program of a worker process: loads one Python model and runs it, request by request.

``process`` is the server's side and describes the messages. The process ends when the server closes the
socket, with the model's ``finalize``, or a while after the server is gone, whatever the model is doing. It
ignores signals to the whole group of processes: the server finishes what runs.
"""

from __future__ import annotations

import inspect
import io
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Coroutine
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import orjson

from interlingua.runtime.python_worker import channel
from interlingua.runtime.python_worker import triton_python_backend_utils as utils
from interlingua.runtime.python_worker.bls import BlsClient
from interlingua.runtime.python_worker.connection import WorkerConnection
from interlingua.runtime.python_worker.event_loop import EventLoop

_NO_ROUNDS = (
    "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, and the model's configuration has no "
    "sequence_batching with iterative_sequence"
)

_GRACE_SECS = 30.0
"""How long a model may continue after the server is gone."""

_TEXT_CHARS = 4096
"""The longest text of an exception: the stack after it must begin within what clients see of an error."""

_HERE = str(Path(__file__).parent)


class _Answer:
    """The answer to one request: the receiver of ``InferenceResponseSender``. ``ends_run``: the end of the
    answer is also the end of the run."""

    def __init__(self, server: WorkerConnection, loop: EventLoop, slot: int, requested: list[str]) -> None:
        self._server = server
        self._loop = loop
        self._slot = slot
        self._requested = frozenset(requested)
        self.ends_run = False
        self.sent = 0

    def cancelled(self) -> bool:
        return self._server.cancelled(self._slot)

    def deliver(self, response: utils.InferenceResponse | None, final: bool) -> None:
        tensors: list[utils.Tensor] = []
        parameters, error = "{}", None
        if response is not None and not self.cancelled():
            parameters = response.parameters()
            failure = response.error()
            if failure is not None:
                known = isinstance(failure, utils.TritonError)
                code = failure.code() if known else utils.TritonError.INTERNAL
                error = code, _sendable(str(failure))
            else:
                tensors = [each for each in response.output_tensors() if each.name() in self._requested]
            # a client that does not read must not hold up every coroutine of the model
            if not final and not self._loop.is_current:
                self._server.wait_for_reader(self._slot, self.sent)
        elif not final:
            return
        packed = self._server.pack(tensors)
        self.sent += 1
        ends_run = final and self.ends_run
        value = ["response", self._slot, packed.value, parameters, error, final, ends_run]
        self._server.send(value, packed.payload, packed.descriptors)

    def fail(self, text: str) -> None:
        self.deliver(utils.InferenceResponse(error=utils.TritonError(text)), True)


class _Work(NamedTuple):
    """A request as the model sees it, and its answer."""

    request: utils.InferenceRequest
    sender: utils.InferenceResponseSender
    answer: _Answer

    def rescheduled(self) -> bool:
        again = self.request._release_flags == utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE
        return again and not self.sender.closed


class _Rounds:
    """The requests of a model with iterative sequences, rescheduled and new. It keeps up to ``places`` of
    them between executions, and each execution has up to ``rows``, the oldest first. The server sends more
    while there is room."""

    def __init__(self, server: WorkerConnection, rows: int, places: int) -> None:
        self._server = server
        self._rows = rows
        self._places = places
        self._waiting: deque[_Work] = deque()
        self._reported: int | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, work: list[_Work]) -> None:
        """Add ``work`` from the server, which waits for a report of room for more."""
        self._waiting.extend(work)
        self._reported = None

    def take(self) -> list[_Work]:
        """The requests of the next execution. Ends those whose clients have disconnected."""
        taken: list[_Work] = []
        while self._waiting and len(taken) < self._rows:
            work = self._waiting.popleft()
            if not work.answer.cancelled():
                taken.append(work)
            elif work.sender.close():
                work.answer.deliver(None, True)
        return taken

    def keep(self, work: list[_Work]) -> None:
        """Keep the rescheduled part of ``work``, which has run, and report the room to the server."""
        for each in work:
            if each.rescheduled():
                each.request.set_flags(0)
                each.request.set_release_flags(utils.TRITONSERVER_REQUEST_RELEASE_ALL)
                self._waiting.append(each)
        room = self._places - len(self._waiting)
        if room > 0 and room != self._reported:
            self._server.send(["idle" if self._reported is None else "room", room])
            self._reported = room


class _Model:
    """The user's model and its surroundings."""

    def __init__(self, server: WorkerConnection, settings: dict[str, Any]) -> None:
        self._server = server
        self._instance = settings["instance"]
        self._name, self._version = settings["args"]["model_name"], int(settings["args"]["model_version"])
        self._loop = EventLoop()
        made = _model_class(settings["folders"], settings["module"])
        self.config: dict[str, Any] = settings["config"]
        if hasattr(made, "auto_complete_config"):
            completed = made.auto_complete_config(utils.ModelConfig(self.config))
            self.config = self.config if completed is None else completed.as_dict()
        self._decoupled = utils.using_decoupled_model_transaction_policy(self.config)
        self.rounds = self._made_rounds()
        self._model = made()
        if hasattr(self._model, "initialize"):
            text = orjson.dumps(self.config).decode()
            self._model.initialize({**settings["args"], "model_config": text})

    def run(self, frame: channel.ChannelFrame) -> None:
        """Run the requests of a message in one execution, and report when the model is free for the next."""
        _, requests, packed = frame.value
        tensors = self._server.tensors(packed, frame)
        work = [self._request(each, tensors) for each in requests]
        tensors.clear()
        if self.rounds is not None:
            self.rounds.add(work)
            self.run_round(self.rounds)
        elif not self._execute(work):
            # the run is over, and answers may come from other threads
            self._server.send(["idle"])

    def run_round(self, rounds: _Rounds) -> None:
        """Run iterating requests once more."""
        work = rounds.take()
        if work:
            self._execute(work)
        rounds.keep(work)

    def _made_rounds(self) -> _Rounds | None:
        sequences = self.config.get("sequence_batching") or {}
        if not sequences.get("iterative_sequence"):
            return None
        rows = max(self.config["max_batch_size"], 1)
        places = (sequences.get("oldest") or {}).get("max_candidate_sequences") or rows
        return _Rounds(self._server, rows, places)

    def _execute(self, work: list[_Work]) -> bool:
        """Run ``work`` in one execution. Returns whether the answers report its end."""
        reported_end = False
        try:
            result = self._model.execute([each.request for each in work])
            if not inspect.iscoroutine(result):
                reported_end = self._finish(work, result)
            elif self._decoupled:
                # those of several runs overlap
                self._loop.start(self._in_background(work, result))
            else:
                reported_end = self._finish(work, self._loop.run(result))
        except (Exception, SystemExit) as error:
            for each in work:
                self._fail(each, error)
        if self.rounds is None:
            for each in work:
                if each.rescheduled():
                    self._fail(each, utils.TritonModelException(_NO_ROUNDS))
        return reported_end

    async def _in_background(self, work: list[_Work], result: Coroutine[Any, Any, Any]) -> None:
        """Await the ``execute`` of a decoupled model. If it fails, so do the unfinished answers."""
        try:
            self._finish(work, await result)
        except BaseException as error:
            # SystemExit and CancelledError are a failure of the run as well
            for each in work:
                self._fail(each, error)

    def _request(self, fields: list[Any], tensors: list[utils.Tensor]) -> _Work:
        """A request as the model sees it, with the first of ``tensors``, which it consumes, and its
        answer."""
        slot, id, correlation_id, flags, timeout, parameters, requested, streaming, count = fields
        answer = _Answer(self._server, self._loop, slot, requested)
        request = utils.InferenceRequest(
            id,
            correlation_id,
            tensors[:count],
            requested,
            self._name,
            self._version,
            flags,
            timeout,
            parameters=parameters,
        )
        del tensors[:count]
        sender = utils.InferenceResponseSender(answer.deliver, answer.cancelled, self._decoupled)
        request._sender = sender
        request._streaming = streaming
        return _Work(request, sender, answer)

    def finalize(self) -> None:
        """End the model's tasks, then finalize it."""
        self._loop.close()
        if hasattr(self._model, "finalize"):
            self._model.finalize()

    def _finish(self, work: list[_Work], result: Any) -> bool:
        """Deliver the result of ``execute``. Returns whether it reports the end of the run. Raises
        for an invalid result."""
        if self._decoupled:
            if result is not None:
                raise utils.TritonModelException(
                    f"Python model '{self._instance}' is using the decoupled mode and the execute function "
                    "must return None."
                )
            return False
        if result is None:
            # its own threads or tasks answer; the sender of a dropped request reports it
            return False
        if not isinstance(result, list | tuple):
            raise utils.TritonModelException(
                f"Expected a list in the execute return, found type '{type(result).__name__}'."
            )
        if len(result) != len(work):
            raise utils.TritonModelException(
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
                f"InferenceRequest(s) size is:{len(work)}, and InferenceResponse(s) size is:{len(result)}"
            )
        ended = False
        for left, each, response in zip(range(len(work) - 1, -1, -1), work, result, strict=True):
            # a later answer, which may come during the next run, does not end it
            each.answer.ends_run = not left and self.rounds is None and response is not None
            ended = self._send(each, response)
        return ended

    def _send(self, work: _Work, response: Any) -> bool:
        """Answer a request with its result. Returns whether that ends it."""
        if response is None:
            return False
        try:
            if work.rescheduled():
                raise utils.TritonModelException(
                    "Expected a None object in the execute function return list for rescheduled request, "
                    f"found type '{type(response).__name__}'."
                )
            if not isinstance(response, utils.InferenceResponse):
                raise utils.TritonModelException(
                    "Expected an 'InferenceResponse' object in the execute function return list, found type "
                    f"'{type(response).__name__}'."
                )
            work.sender.send(response, utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        except Exception as error:
            return self._fail(work, error)
        return True

    def _fail(self, work: _Work, error: BaseException) -> bool:
        """End the answer to a request with ``error``, if it has not ended. Returns whether it had not."""
        if not work.sender.close():
            return False
        work.answer.fail(
            f"Failed to process the request(s) for model '{self._instance}', message: {_error_text(error)}"
        )
        return True


def main(sock: int, slots: int, inputs: int, outputs: int) -> None:
    """Serve one model on a socket, with the three pages that are shared with the server."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # a handler, because to ignore a signal would be inherited by what the model starts
        signal.signal(number, lambda *_: None)
    for descriptor in (sock, slots, inputs, outputs):
        # processes that the model starts must not keep the connection open
        os.set_inheritable(descriptor, False)
    # its output must not wait for more, or for the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    connection = socket.socket(fileno=sock)
    threading.Thread(target=_watch, args=(sock,), name="watch", daemon=True).start()
    server = WorkerConnection(connection, slots, inputs, outputs)
    utils.Logger.write = lambda level, text: server.send(["log", level, text])
    sys.modules["triton_python_backend_utils"] = utils
    sys.dont_write_bytecode = True
    message = server.next()
    if message is None:
        return
    try:
        model = _Model(server, message.value[1])
    except (Exception, SystemExit) as error:
        server.send(["failed", _error_text(error)])
        return
    bls = BlsClient(server)
    utils.InferenceRequest.infer, utils.InferenceRequest.infer_async = bls.infer, bls.infer_async
    server.send(["loaded", model.config])
    while True:
        if model.rounds and not server.arrived():
            model.run_round(model.rounds)
            continue
        frame = server.next()
        if frame is None:
            break
        model.run(frame)
    if server.forked:
        # it has come back from execute; the original finalizes
        os._exit(0)
    try:
        model.finalize()
    except Exception:
        traceback.print_exc()


def _model_class(folders: list[str], module: str) -> Any:
    sys.path[:0] = folders
    # not importlib.import_module, whose own frames would be in a traceback that clients see
    found = __import__(module, fromlist=["*"])
    if not hasattr(found, "TritonPythonModel"):
        raise utils.TritonModelException("module has no class TritonPythonModel")
    made: Any = found.TritonPythonModel
    if not hasattr(made, "execute"):
        raise utils.TritonModelException("class TritonPythonModel has no method execute")
    return made


def _error_text(error: BaseException) -> str:
    """An exception in Triton's form: type, text, and the frames from the innermost on."""
    # a traceback omits the frames of imports, which Triton shows
    numbers = dict(traceback.walk_tb(error.__traceback__))
    frame: FrameType | None = list(numbers)[-1] if numbers else None
    lines = ""
    while frame is not None and not frame.f_code.co_filename.startswith(_HERE):
        code = frame.f_code
        lines += f"  {code.co_filename}({numbers.get(frame, frame.f_lineno)}): {code.co_name}\n"
        frame = frame.f_back
    text = _sendable(f"{type(error).__name__}: {error}"[:_TEXT_CHARS])
    return f"{text}\n\nAt:\n{lines}" if lines else text


def _sendable(text: str) -> str:
    """``text`` without unpaired surrogates, which UTF-8 lacks."""
    return text.encode(errors="backslashreplace").decode()


def _watch(sock: int) -> None:
    """End the process a while after the server has closed or is gone."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    poll.poll()
    time.sleep(_GRACE_SECS)
    os._exit(1)
