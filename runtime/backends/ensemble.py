"""Runs ensembles: requests that go through several models of this server, as a configuration connects them.

A step runs as soon as the tensors that it takes are there, beside others; the tensors are handed on as they
are. The models are found by name with every request, so a step may be any model that is served, loaded anew
or behind an upstream, and what they count of a step is counted as for a client's request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path

from runtime.backends import Answer, Surroundings
from runtime.batch_dimension import fitted
from runtime.ensemble import Plan, Step, plan
from runtime.model_config import LoadError, ModelConfig
from runtime.target import Target
from schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    Readiness,
    RequestedOutput,
    Signature,
    Tensor,
    TensorSpec,
)

_under_way: ContextVar[tuple[str, ...]] = ContextVar("ensembles under way", default=())
"""The ensembles that a request has entered, the outermost first."""


_UNDECLARED = Signature((), ())


class EnsembleInstance:
    """A ``RequestInstance`` that has nothing of its own but a plan. It takes any number of requests at once
    and is never asked to run several as one."""

    decoupled = False
    signature: Signature | None = None

    def __init__(self, name: str, steps: Plan, declared: Signature = _UNDECLARED) -> None:
        self._name = name
        self._plan = steps
        self._declared = declared
        self._surroundings: Surroundings | None = None

    async def stream(
        self, request: InferRequest, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]
    ) -> AsyncGenerator[Answer, None]:
        """The one answer. Raises what a step raises, with its model named, and UNAVAILABLE for an ensemble
        that would enter itself."""
        started = time.monotonic_ns()
        with self._entered():
            tensors = await self._run(request, {tensor.name: tensor for tensor in inputs}, outputs)
        given = tuple(
            _received(tensors[name], name, self._declared.output_names.get(name), self._declared)
            for name in outputs
            if name in tensors
        )
        yield Answer(given, {}, None, True, started, time.monotonic_ns())

    @contextmanager
    def asked(self, context: Context) -> Iterator[None]:
        """See ``RequestInstance``: what its steps ask shows for itself whether it would wait."""
        yield

    def join(self, surroundings: Surroundings) -> None:
        """See ``RequestInstance``."""
        self._surroundings = surroundings

    def readiness(self, place: int | None = None) -> Readiness:
        """Whether each model of a step would be run now."""
        if self._surroundings is None:
            return Readiness(True)
        try:
            with self._entered():
                for step in self._plan.steps:
                    ready = self._surroundings.standing(step.model, step.version)
                    if not ready.ready:
                        reason = f"model '{step.model}' of a step is not ready: {ready.reason}"
                        return Readiness(False, reason)
        except InferenceError as error:
            return Readiness(False, error.message)
        return Readiness(True)

    async def labels(self) -> Mapping[str, tuple[str, ...]]:
        """The labels of the classes of those outputs of steps that have any, by the ensemble's names. A
        model that cannot be asked has none."""
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

    async def _run(
        self, request: InferRequest, tensors: dict[str, Tensor], outputs: tuple[str, ...]
    ) -> dict[str, Tensor]:
        """Run what ``outputs`` need; ``tensors`` and what the steps gave, by the ensemble's names."""
        waiting = self._plan.needed(outputs)
        # what is still to come; an optional input that was not given never comes
        coming = {tensor for step, given in waiting for tensor in _tensors(step, given)}
        running: set[asyncio.Task[dict[str, Tensor]]] = set()
        begun = 0
        try:
            while waiting or running:
                able = [each for each in waiting if coming.isdisjoint(each[0].inputs.values())]
                begun += len(able)
                for step, given in able:
                    waiting.remove((step, given))
                    running.add(asyncio.create_task(self._step(request, step, given, tensors, begun == 1)))
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                # every failure is looked at, also those beside the one that is told
                failed = [task for task in done if task.exception() is not None]
                for task in failed or done:
                    tensors |= (gave := task.result())
                    coming -= gave.keys()
        finally:
            for task in running:
                task.cancel()
            # a failure beside the one that is told belongs to nobody
            await asyncio.gather(*running, return_exceptions=True)
        return tensors

    async def _step(
        self,
        request: InferRequest,
        step: Step,
        outputs: tuple[str, ...],
        tensors: Mapping[str, Tensor],
        alone: bool,
    ) -> dict[str, Tensor]:
        """Ask the model of ``step`` for ``outputs``; the answer by the ensemble's names. ``alone``: no other
        step has begun."""
        try:
            model = self._found(step.model)
            theirs = await model.signature(step.version)
            asked = replace(
                request,
                model=step.model,
                version=step.version,
                inputs=tuple(
                    _received(tensors[tensor], name, theirs.input_names.get(name), theirs)
                    for name, tensor in step.inputs.items()
                    if tensor in tensors
                ),
                outputs=tuple(RequestedOutput(name) for name in outputs),
                context=replace(request.context, timings={}),
            )
            response = await model.infer(asked)
            found = {tensor.name: tensor for tensor in response.outputs}
            for name in outputs:
                if name not in found:
                    raise InferenceError(ErrorCode.MODEL_FAILED, f"it gave no output '{name}'")
        except InferenceError as error:
            raise InferenceError(
                error.code,
                f"in ensemble '{self._name}', step '{step.model}': {error.message}",
                origin=error.origin or step.model,
                retryable=error.retryable,
                details=error.details,
                begun=error.begun or not alone,
            ) from error
        return {step.outputs[name]: found[name] for name in outputs}

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """Stands around whatever asks the models of the steps. Raises UNAVAILABLE where this ensemble is
        among them, however deep."""
        before = _under_way.get()
        if self._name in before:
            way = " -> ".join((*before, self._name))
            raise InferenceError(ErrorCode.UNAVAILABLE, f"ensemble '{self._name}' is a step of itself: {way}")
        token = _under_way.set((*before, self._name))
        try:
            yield
        finally:
            _under_way.reset(token)

    def _found(self, model: str) -> Target:
        if self._surroundings is None:
            raise InferenceError(ErrorCode.UNAVAILABLE, f"ensemble '{self._name}' is not served yet")
        return self._surroundings.find(model)


def load(path: Path, config: ModelConfig) -> EnsembleInstance:
    """Plan the ensemble that ``config`` states. Raises ``LoadError`` where that is no plan."""
    if config.decoupled:
        raise LoadError(f"{path}: an ensemble cannot be decoupled")
    try:
        steps = plan(
            config.ensemble, (spec.name for spec in config.inputs), (spec.name for spec in config.outputs)
        )
    except ValueError as error:
        raise LoadError(f"{path}: ensemble_scheduling: {error}") from error
    declared = Signature(config.inputs, config.outputs, config.max_batch_size)
    return EnsembleInstance(config.name, steps, declared)


def _received(tensor: Tensor, name: str, spec: TensorSpec | None, signature: Signature) -> Tensor:
    """``tensor`` as ``name`` of a model with ``signature``, which declares ``spec`` of it."""
    if spec is not None:
        tensor = fitted(tensor, spec.shape, signature.max_batch_size > 0)
    return tensor.renamed(name)


def _tensors(step: Step, outputs: tuple[str, ...]) -> Iterator[str]:
    return (step.outputs[name] for name in outputs)
