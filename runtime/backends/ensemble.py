"""Runs ensembles: requests that pass through several models of this server, as a configuration connects them.

A step runs as soon as its inputs are there, concurrently with others; tensors are passed on uncopied. An
output that a step omits is an input that the next does not get. A step that answers any number of times makes
the ensemble answer as often: later steps run for one answer after the other. The models are found by name
with every request, so a step may be any served model, reloaded or of an upstream, and its statistics count a
step like a client's request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path

from interlingua.runtime.backends import Composition
from interlingua.runtime.model_config.config import LoadError, ModelConfig
from interlingua.runtime.models.batch_dimension import fitted
from interlingua.runtime.models.ensemble import EnsemblePlan, Needed, Step, downstream, plan
from interlingua.runtime.models.instance_answer import InstanceAnswer
from interlingua.runtime.target import ServerHooks, Target
from interlingua.schemas import (
    Context,
    InferenceError,
    InferRequest,
    InferResponse,
    Readiness,
    RequestedOutput,
    Signature,
    Tensor,
    TensorSpec,
    unavailable,
)

_under_way: ContextVar[tuple[str, ...]] = ContextVar("ensembles under way", default=())
"""The ensembles that a request has entered, the outermost first."""


_UNDECLARED = Signature((), ())

Tensors = Mapping[str, Tensor]
Give = Callable[[Tensors], Awaitable[None]]
"""Consumes the tensors of one answer, by the ensemble's names."""


class EnsembleInstance:
    """A ``RequestInstance`` that consists of a plan. It takes any number of requests at once and never a
    batch of them."""

    signature: Signature | None = None
    places = 0
    batches = False

    def __init__(self, name: str, steps: EnsemblePlan, declared: Signature = _UNDECLARED) -> None:
        self._name = name
        self._plan = steps
        self._declared = declared
        self._hooks: ServerHooks | None = None
        self.decoupled = False
        self._repeated: tuple[Step, ...] = ()
        self._fault = ""

    @property
    def composition(self) -> Composition:
        return self

    async def stream(
        self, request: InferRequest, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]
    ) -> AsyncGenerator[InstanceAnswer, None]:
        """The one answer; of a ``decoupled`` ensemble one for each of the last decoupled step, in their
        order. Raises the error of a step, with its model named, and UNAVAILABLE for an ensemble that would
        enter itself, or whose models do not fit together."""
        started = time.monotonic_ns()
        if self._fault:
            raise unavailable(f"ensemble '{self._name}': {self._fault}")
        waiting = self._plan.needed(outputs)
        inputs_by_name = {tensor.name: tensor for tensor in inputs}
        if not any(self._repeats(step) for step, _ in waiting):
            with self._entered():
                tensors = await self._run(request, waiting, inputs_by_name)
            final = not self.decoupled
            yield InstanceAnswer(
                self._answer(tensors, outputs), {}, None, final, started, time.monotonic_ns()
            )
        else:
            async with aclosing(self._answers(request, waiting, inputs_by_name)) as answers:
                async for tensors in answers:
                    outputs_given = self._answer(tensors, outputs)
                    yield InstanceAnswer(outputs_given, {}, None, False, started, time.monotonic_ns())
        if self.decoupled:
            yield InstanceAnswer((), {}, None, True, started, time.monotonic_ns())

    async def learn(self) -> tuple[bool, str]:
        repeated: dict[int, Step] = {}
        with suppress(InferenceError), self._entered():
            for place, step in enumerate(self._plan.steps):
                with suppress(InferenceError):
                    if await self._found(step.model).decoupled(step.version):
                        repeated[place] = step
        self._repeated = tuple(repeated.values())
        self._fault = self._plan.mixture(repeated.keys()) if repeated else ""
        self.decoupled = bool(repeated)
        return self.decoupled, self._fault

    @contextmanager
    def guard(self, context: Context) -> Iterator[None]:
        """See ``RequestInstance``: each step checks for itself."""
        yield

    def join(self, hooks: ServerHooks) -> None:
        self._hooks = hooks

    def readiness(self, place: int | None = None) -> Readiness:
        if self._hooks is None:
            return Readiness(True)
        if self._fault:
            return Readiness(False, self._fault)
        try:
            with self._entered():
                for step in self._plan.steps:
                    ready = self._hooks.standing(step.model, step.version)
                    if not ready.ready:
                        reason = f"model '{step.model}' of a step is not ready: {ready.reason}"
                        return Readiness(False, reason)
        except InferenceError as error:
            return Readiness(False, error.message)
        return Readiness(True)

    async def labels(self) -> Mapping[str, tuple[str, ...]]:
        """The class labels of the outputs of steps, by the ensemble's names. An unavailable model has
        none."""
        found: dict[str, tuple[str, ...]] = {}
        for step in self._plan.steps:
            try:
                with self._entered():
                    signature = await self._found(step.model).signature(step.version)
            except InferenceError:
                continue
            named = signature.output_names
            found |= {
                tensor: named[name].labels
                for name, tensor in step.outputs.items()
                if name in named and named[name].labels
            }
        return found

    async def close(self) -> None:
        """See ``RequestInstance``: nothing to free."""

    def _repeats(self, step: Step) -> bool:
        return any(step is each for each in self._repeated)

    def _answer(self, tensors: Tensors, outputs: tuple[str, ...]) -> tuple[Tensor, ...]:
        """The computed ones of ``outputs``."""
        return tuple(
            _received(tensors[name], name, self._declared.output_names.get(name), self._declared)
            for name in outputs
            if name in tensors
        )

    async def _answers(
        self, request: InferRequest, waiting: list[Needed], tensors: Tensors
    ) -> AsyncGenerator[Tensors, None]:
        """The tensors of one answer after the other. A separate task makes them, because its context
        variables must not reach their consumer; it is at most one ahead."""
        made: asyncio.Queue[Tensors | BaseException | None] = asyncio.Queue(1)

        async def make() -> None:
            end: BaseException | None = None
            try:
                with self._entered():
                    await self._flow(request, waiting, tensors, made.put)
            except Exception as error:  # it is raised where the answers are taken
                end = error
            await made.put(end)

        making = asyncio.create_task(make())
        try:
            while (each := await made.get()) is not None:
                if isinstance(each, BaseException):
                    raise each
                yield each
        finally:
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)

    async def _flow(
        self, request: InferRequest, waiting: list[Needed], tensors: Tensors, give: Give, begun: bool = False
    ) -> None:
        """Run ``waiting``, and pass on the tensors of each answer. ``begun``: some steps have run already."""
        repeated = next((each for each in waiting if self._repeats(each[0])), None)
        if repeated is None:
            await give(await self._run(request, waiting, tensors, begun))
            return
        after = downstream(repeated, waiting)
        before = [each for each in waiting if each not in after and each is not repeated]
        tensors = await self._run(request, before, tensors, begun)
        pieces = self._pieces(request, repeated, tensors, begun or bool(before))
        async with aclosing(pieces) as found:
            async for piece in found:
                await self._flow(request, after, {**tensors, **piece}, give, begun=True)

    async def _run(
        self, request: InferRequest, waiting: list[Needed], inputs_by_name: Tensors, begun: bool = False
    ) -> Tensors:
        """The tensors after the steps ``waiting`` have run, by the ensemble's names, with the inputs.
        ``begun``: other steps have run already."""
        tensors = dict(inputs_by_name)
        waiting = list(waiting)
        # tensors that are still to come; an omitted optional input never does
        coming = {tensor for step, outputs in waiting for tensor in _tensors(step, outputs)}
        running: dict[asyncio.Task[dict[str, Tensor]], Needed] = {}
        count = 0
        try:
            while waiting or running:
                able = [each for each in waiting if coming.isdisjoint(each[0].inputs.values())]
                count += len(able)
                for each in able:
                    waiting.remove(each)
                    alone = count == 1 and not begun
                    running[asyncio.create_task(self._step(request, each, tensors, alone))] = each
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                # every failure is retrieved, also those that are not raised
                failed = [task for task in done if task.exception() is not None]
                for task in failed or done:
                    tensors |= task.result()
                    coming.difference_update(_tensors(*running.pop(task)))
        finally:
            for task in running:
                task.cancel()
            # only one failure is raised
            await asyncio.gather(*running, return_exceptions=True)
        return tensors

    async def _step(
        self, request: InferRequest, needed: Needed, tensors: Tensors, alone: bool
    ) -> dict[str, Tensor]:
        """The outputs of a step, by the ensemble's names. ``alone``: no other step has begun."""
        step, outputs = needed
        try:
            model = self._found(step.model)
            response = await model.infer(await self._step_request(model, request, needed, tensors))
        except InferenceError as error:
            raise self._named(step, error, alone) from error
        return _by_ensemble(step, outputs, response)

    async def _pieces(
        self, request: InferRequest, needed: Needed, tensors: Tensors, begun: bool
    ) -> AsyncGenerator[dict[str, Tensor], None]:
        """The answers with outputs of a decoupled step, by the ensemble's names. The first failed one is the
        end. ``begun``: some step has run before."""
        step, outputs = needed
        try:
            model = self._found(step.model)
            step_request = await self._step_request(model, request, needed, tensors)
            async with aclosing(model.stream(step_request)) as responses:
                async for response in responses:
                    if response.error is not None:
                        raise response.error
                    if response.outputs:
                        begun = True
                        yield _by_ensemble(step, outputs, response)
        except InferenceError as error:
            raise self._named(step, error, not begun) from error

    async def _step_request(
        self, model: Target, request: InferRequest, needed: Needed, tensors: Tensors
    ) -> InferRequest:
        step, outputs = needed
        theirs = await model.signature(step.version)
        return replace(
            request,
            model=step.model,
            version=step.version,
            inputs=tuple(
                _received(tensors[tensor], name, theirs.input_names.get(name), theirs)
                for name, tensor in step.inputs.items()
                if tensor in tensors
            ),
            outputs=tuple(RequestedOutput(name) for name in outputs),
            context=replace(request.context, timings={}, ended={}),
        )

    def _named(self, step: Step, error: InferenceError, alone: bool) -> InferenceError:
        return InferenceError(
            error.code,
            f"in ensemble '{self._name}', step '{step.model}': {error.message}",
            origin=error.origin or step.model,
            retryable=error.retryable,
            details=error.details,
            begun=error.begun or not alone,
        )

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """Encloses all calls of the models of the steps. Raises UNAVAILABLE if this ensemble is among them,
        at any depth."""
        before = _under_way.get()
        if self._name in before:
            way = " -> ".join((*before, self._name))
            raise unavailable(f"ensemble '{self._name}' is a step of itself: {way}")
        token = _under_way.set((*before, self._name))
        try:
            yield
        finally:
            _under_way.reset(token)

    def _found(self, model: str) -> Target:
        if self._hooks is None:
            raise unavailable(f"ensemble '{self._name}' is not served yet")
        return self._hooks.find(model)


def load(path: Path, config: ModelConfig) -> EnsembleInstance:
    """Plan the ensemble that ``config`` states. Raises ``LoadError`` for an invalid plan. Only its steps
    determine whether it is decoupled."""
    try:
        steps = plan(
            config.ensemble, (spec.name for spec in config.inputs), (spec.name for spec in config.outputs)
        )
    except ValueError as error:
        raise LoadError(f"{path}: ensemble_scheduling: {error}") from error
    declared = Signature(config.inputs, config.outputs, config.max_batch_size)
    return EnsembleInstance(config.name, steps, declared)


def _received(tensor: Tensor, name: str, spec: TensorSpec | None, signature: Signature) -> Tensor:
    """``tensor`` as input or output ``name`` of a model with ``signature``, which declares ``spec`` for
    it."""
    if spec is not None:
        tensor = fitted(tensor, spec.shape, signature.max_batch_size > 0)
    return tensor.renamed(name)


def _by_ensemble(step: Step, outputs: tuple[str, ...], response: InferResponse) -> dict[str, Tensor]:
    return {step.outputs[tensor.name]: tensor for tensor in response.outputs if tensor.name in outputs}


def _tensors(step: Step, outputs: tuple[str, ...]) -> Iterator[str]:
    return (step.outputs[name] for name in outputs)
