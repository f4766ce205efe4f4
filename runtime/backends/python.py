"""Runs models written in Python, as for Triton's Python backend, in processes of their own.

Every instance is one worker process, which runs one request at a time (``runtime.python_worker``). A worker
that exits fails its requests and is restarted; until then the model is not ready, unless it has another
instance.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from interlingua.runtime.backends import Job, RequestInstance
from interlingua.runtime.backends.python_file import refuse_environment
from interlingua.runtime.model_config.config import DATATYPE_OF_TYPE, LoadError, ModelConfig
from interlingua.runtime.model_config.message import config_message
from interlingua.runtime.models.instance_answer import InstanceAnswer
from interlingua.runtime.python_worker.process import Worker, WorkerError
from interlingua.runtime.target import ServerHooks
from interlingua.schemas import (
    CancelToken,
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    Readiness,
    Signature,
    Tensor,
    TensorSpec,
    model_failed,
    unavailable,
)
from interlingua.schemas.message_json import message_json
from interlingua.schemas.model_config import MODEL_CONFIG

_FIRST_DELAY_SECS = 0.5
_LONGEST_DELAY_SECS = 30.0
"""The delays between attempts to restart a worker, doubled with each."""

_CLOSE_SECS = 30.0
"""How long running requests may continue when the model is closed."""

_RESTARTING = "its process is being started again"

_CLIENT_CALL = nullcontext()

_log = logging.getLogger(__name__)


class PythonInstance:
    """A ``RequestInstance`` on worker processes, one for each of ``settings``."""

    composition = None

    def __init__(self, settings: Sequence[Mapping[str, Any]]) -> None:
        self._settings = settings
        self._workers: list[Worker | None] = []
        self._waiting: dict[asyncio.Future[Worker], int | None] = {}
        self._closing = threading.Event()
        self._failure = ""
        self._hooks: ServerHooks | None = None
        self.places = len(settings)
        try:
            for each in settings:
                self._workers.append(self._adopted(Worker(each)))
        except WorkerError:
            for worker in self._at(None):
                worker.stop()
            raise
        config = self._at(None)[0].config
        self.decoupled = bool(config.get("model_transaction_policy", {}).get("decoupled", False))
        self.batches = "dynamic_batching" in config
        self.signature: Signature | None = _signature(config)
        self._datatypes = {spec.name: spec.datatype for spec in self.signature.outputs}

    async def stream(
        self, request: InferRequest, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]
    ) -> AsyncGenerator[InstanceAnswer, None]:
        place = await self.claim(request.context.cancel)
        (answers,) = place.run([Job(request, inputs, outputs)])
        try:
            async for answer in answers:
                yield answer
        finally:
            await answers.aclose()

    async def claim(self, cancel: CancelToken | None = None, place: int | None = None) -> Worker:
        self._attach()
        worker = None if self._waiting else self._free(place)
        if worker is not None:
            worker.promised = True
            return worker
        if not self._at(place):
            raise _unavailable(self._failure or _RESTARTING)
        waiter: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()

        def give_up() -> None:
            if not waiter.done():
                waiter.set_exception(InferenceError(ErrorCode.CANCELLED, "the request was cancelled"))

        self._waiting[waiter] = place
        # those before may wait for other places
        self._wake()
        cancel = cancel or CancelToken()
        cancel.on_cancel(give_up)
        try:
            return await waiter
        except asyncio.CancelledError:
            # promised and cancelled at once: the turn goes to the next
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                waiter.result().release()
            raise
        finally:
            cancel.forget(give_up)
            self._waiting.pop(waiter, None)

    def guard(self, context: Context) -> AbstractContextManager[None]:
        caller = context.caller
        return self._called_by(caller) if isinstance(caller, Worker) else _CLIENT_CALL

    @contextmanager
    def _called_by(self, caller: Worker) -> Iterator[None]:
        caller.called.append(self)
        try:
            if _waits_for_itself(self, []):
                raise unavailable(
                    "the model cannot be called: each of its instances runs a request that waits for this "
                    "call, directly or through others"
                )
            yield
        finally:
            caller.called.remove(self)

    def join(self, hooks: ServerHooks) -> None:
        self._hooks = hooks
        for worker in self._at(None):
            worker.calls.hooks = hooks

    def readiness(self, place: int | None = None) -> Readiness:
        self._attach()
        return Readiness(True) if self._at(place) else Readiness(False, self._failure or _RESTARTING)

    async def close(self) -> None:
        """Wait a while for running requests, then let every worker finalize and end it."""
        self._closing.set()
        try:
            async with asyncio.timeout(_CLOSE_SECS):
                # promised: the claimant has not run yet
                while self._waiting or any(worker.held or worker.promised for worker in self._at(None)):
                    self._attach()
                    await asyncio.sleep(0.01)
        except TimeoutError:
            _log.warning(
                "requests unfinished at unload", extra={"facts": {"instance": self._settings[0]["instance"]}}
            )
        for worker in self._workers:
            # one that exits meanwhile is None by then
            if worker is not None:
                worker.calls.close()
                worker.detach()
                await asyncio.to_thread(worker.stop)
                worker.fail_rest()

    # --- how it is done

    def _free(self, place: int | None) -> Worker | None:
        """The free worker with the fewest requests: a worker may be free while coroutines and iterative
        sequences continue."""
        free = (worker for worker in self._at(place) if worker.idle)
        return max(free, key=attrgetter("room"), default=None)

    def _at(self, place: int | None) -> list[Worker]:
        """The running workers, or the one at ``place``."""
        workers = self._workers if place is None else (self._workers[place],)
        return [worker for worker in workers if worker is not None]

    def _wake(self) -> None:
        """Promise free workers to waiting claims, in their order."""
        for waiter, place in list(self._waiting.items()):
            if waiter.done():
                continue
            worker = self._free(place)
            if worker is not None:
                # later claims must not overtake
                worker.promised = True
                del self._waiting[waiter]
                waiter.set_result(worker)
            elif place is None:
                return

    def _attach(self) -> None:
        for worker in self._workers:
            if worker is not None:
                worker.attach()

    def _adopted(self, worker: Worker) -> Worker:
        worker.on_idle = self._wake
        worker.on_lost = self._lost
        worker.check = self._check
        worker.calls.hooks = self._hooks
        return worker

    def _lost(self, worker: Worker) -> None:
        index = self._workers.index(worker)
        self._workers[index] = None
        _log.error("model process exited", extra={"facts": {"instance": self._settings[index]["instance"]}})
        for waiter, place in list(self._waiting.items()):
            if not self._at(place):
                del self._waiting[waiter]
                if not waiter.done():
                    waiter.set_exception(_unavailable("its process has ended"))
        self._changed()
        loop = asyncio.get_running_loop()
        name = f"restart {self._settings[index]['instance']}"
        threading.Thread(target=self._restart, args=(index, worker, loop), name=name, daemon=True).start()

    def _restart(self, index: int, lost: Worker, loop: asyncio.AbstractEventLoop) -> None:
        """Free worker ``index``, which was ``lost``, and start it again until it starts or the model is
        closed. In a thread of its own."""
        lost.stop()
        delay = _FIRST_DELAY_SECS
        while not self._closing.is_set():
            try:
                worker = Worker(self._settings[index])
            except (WorkerError, OSError) as error:
                self._failure = str(error)
                facts = {"instance": self._settings[index]["instance"], "reason": str(error)}
                _log.error("model process failed to restart", extra={"facts": facts})
                self._closing.wait(delay)
                delay = min(2 * delay, _LONGEST_DELAY_SECS)
                continue
            try:
                loop.call_soon_threadsafe(self._return, index, worker)
            except RuntimeError:
                # that loop is closed; the next one attaches to it
                self._return(index, worker)
            return

    def _return(self, index: int, worker: Worker) -> None:
        if self._closing.is_set():
            threading.Thread(target=worker.stop, daemon=True).start()
            return
        self._workers[index] = self._adopted(worker)
        self._failure = ""
        self._wake()
        self._changed()

    def _changed(self) -> None:
        if self._hooks is not None:
            self._hooks.changed()

    def _check(self, answer: InstanceAnswer, outputs: tuple[str, ...]) -> None:
        """Put the outputs in the requested order; make an error of one without the declared datatype. An
        empty one may have any, as at Triton: ``np.array([])`` is the end of many a stream of tokens."""
        by_name = {tensor.name: tensor for tensor in answer.outputs}
        for name, tensor in by_name.items():
            declared = self._datatypes[name]
            if tensor.datatype is not declared and 0 in tensor.shape:
                by_name[name] = replace(tensor, datatype=declared)
            elif tensor.datatype is not declared:
                answer.outputs = ()
                answer.error = model_failed(
                    f"unexpected datatype {tensor.datatype.value} for inference output '{name}', "
                    f"expecting {declared.value}"
                )
                return
        answer.outputs = tuple(by_name[name] for name in outputs if name in by_name)


def load(path: Path, config: ModelConfig) -> PythonInstance:
    """Start the workers of the model whose file is ``path``. Raises ``LoadError`` with the model's exception
    in Triton's form, for an environment of its own, and for a configuration without inputs or outputs that
    the model does not complete."""
    refuse_environment(path, config)
    folder, version = path.parent, path.parent.name
    numbered = version.isdecimal()
    home = folder.parent if numbered else folder
    declared = Signature(config.inputs, config.outputs, config.max_batch_size)
    message = MODEL_CONFIG()
    message.ParseFromString(config_message(config, declared))
    name = config.name or home.name
    settings = []
    for index, instance in enumerate(_instance_names(name, config)):
        kind, _, device = (config.devices[index] if config.devices else config.device).partition(":")
        args = {
            "model_instance_kind": "GPU" if kind == "cuda" else "CPU",
            "model_instance_name": instance,
            "model_instance_device_id": device or "0",
            "model_repository": str(home.absolute()),
            "model_version": version if numbered else "1",
            "model_name": name,
        }
        settings.append(
            {
                "instance": instance,
                "args": args,
                "config": message_json(message),
                # its own modules are found in the version's folder, then in the model's
                "folders": list(dict.fromkeys([str(folder.absolute()), str(home.absolute())])),
                "module": f"{version}.{path.stem}" if numbered else path.stem,
            }
        )
    try:
        return PythonInstance(settings)
    except WorkerError as error:
        raise LoadError(f"Internal: {error}") from error
    except (OSError, KeyError) as error:
        raise LoadError(f"{path}: {error}") from error


def _instance_names(model: str, config: ModelConfig) -> list[str]:
    """Triton's names of the instances: their group's name, by default the model's with the number of the
    group, and their own number in it."""
    count = max(config.instances, 1)
    if sum(each for _, each in config.groups) != count:
        # stated in another place
        return [f"{model}_{number}" for number in range(count)]
    return [
        f"{group or f'{model}_{index}'}_{number}"
        for index, (group, each) in enumerate(config.groups)
        for number in range(each)
    ]


def _waits_for_itself(instance: RequestInstance, above: list[RequestInstance]) -> bool:
    """Whether every run of ``instance`` waits for a call that, in the end, waits for it or for one of those
    ``above``, so that none can ever end."""
    if not isinstance(instance, PythonInstance):
        return False
    above = [*above, instance]
    running = instance._at(None)
    return bool(running) and all(
        worker.running and any(each in above or _waits_for_itself(each, above) for each in worker.called)
        for worker in running
    )


def _unavailable(reason: str) -> InferenceError:
    return unavailable(f"the model is not ready: {reason}")


def _signature(config: Mapping[str, Any]) -> Signature:
    """The signature of a completed configuration. Raises ``KeyError`` for an unknown datatype."""
    batch = (-1,) if config["max_batch_size"] else ()

    def specs(role: str) -> tuple[TensorSpec, ...]:
        return tuple(
            TensorSpec(
                entry["name"],
                DATATYPE_OF_TYPE[entry["data_type"]],
                (*batch, *(entry["reshape"]["shape"] if "reshape" in entry else entry["dims"])),
                bool(entry.get("optional", False)),
            )
            for entry in config[role]
        )

    return Signature(specs("input"), specs("output"), config["max_batch_size"])
