"""A version of a model that is ready: what it runs on, and how it is checked and counted.

A :class:`Version` runs in threads or at once, a :class:`RequestVersion` wherever its instance does. Who
asks, and how long one waits for an answer, belongs to ``runtime.model``.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace

from runtime.backends import Answer, Instance, RequestInstance, Surroundings
from runtime.reshape import Reshape, Run, inward, outward
from runtime.sequences import Sequences
from runtime.validation import RequestCheck
from schemas import InferRequest, Readiness, Signature, Tensor, VersionStatistics

Labels = Callable[[], Awaitable[Mapping[str, tuple[str, ...]]]]

Ran = tuple[tuple[Tensor, ...], int, int]
"""What a run gave, and the ``time.monotonic_ns()`` at which it started and ended."""

_READY = Readiness(True)


def default_instances() -> int:
    """How many runs of one model go on at once where the configuration does not say."""
    return min(4, os.cpu_count() or 1)


class Version:
    """A version of a model that is ready: an instance, its agreed signature and its threads.

    ``instances`` is how many runs may go on at once; 0 runs on the event loop itself. ``run`` is the
    instance's own, or what stands around it where clients see other shapes than the instance.
    """

    def __init__(
        self,
        model: str,
        number: int,
        instance: Instance,
        signature: Signature,
        instances: int,
        run: Run | None = None,
    ) -> None:
        self.number = str(number)
        self.instance = instance
        self.signature = signature
        self.decoupled = False
        self.statistics = VersionStatistics()
        self.check = RequestCheck(model, signature).check
        self._run = run or instance.run
        self.threads: ThreadPoolExecutor | None = None
        if instances:
            self.threads = ThreadPoolExecutor(instances, thread_name_prefix=f"{model}/{number}")

    def run(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> Ran:
        """Run once, by the clock. Raises what the instance raises."""
        started = time.monotonic_ns()
        tensors = self._run(inputs, outputs)
        return tensors, started, time.monotonic_ns()

    def readiness(self) -> Readiness:
        """Ready: what is loaded can run."""
        return _READY

    async def close(self) -> None:
        """Wait for what runs or stands in the queue, whether or not a caller still waits, and free the
        instance."""
        if self.threads is not None:
            await asyncio.to_thread(self.threads.shutdown, wait=True)
        self.instance.close()


class RequestVersion:
    """A version whose instance is given whole requests; ``decoupled`` is the instance's own.

    ``input_reshapes`` and ``output_reshapes`` tell where clients see other shapes than the instance,
    ``sequences`` belong to a model whose requests belong together. ``labels`` is the instance's own, of one
    that learns the labels of its classes from others.
    """

    def __init__(
        self,
        model: str,
        number: int,
        instance: RequestInstance,
        signature: Signature,
        input_reshapes: Mapping[str, Reshape] | None = None,
        output_reshapes: Mapping[str, Reshape] | None = None,
        sequences: Sequences | None = None,
    ) -> None:
        self.number = str(number)
        self.instance = instance
        self.signature = signature
        self.decoupled = instance.decoupled
        self.statistics = VersionStatistics()
        self.check = RequestCheck(model, signature).check
        self._input_reshapes = input_reshapes or {}
        self._output_reshapes = output_reshapes or {}
        self._sequences = sequences
        self._labelled = {spec.name for spec in signature.outputs if spec.labels}
        self.labels: Labels | None = getattr(instance, "labels", None)

    async def answers(self, request: InferRequest, outputs: tuple[str, ...]) -> AsyncGenerator[Answer, None]:
        """The answers to ``request`` in the shapes that clients see. Raises what the instance raises, and
        INVALID_TENSOR for a request that is in no sequence where it must be."""
        inputs = inward(request.inputs, self._input_reshapes)
        if self._sequences is not None:
            inputs += self._sequences.admit(request)
        with self.instance.asked(request.context):
            async with aclosing(self.instance.stream(request, inputs, outputs)) as answers:
                async for answer in answers:
                    answer.outputs = outward(answer.outputs, self._output_reshapes)
                    yield answer

    def join(self, surroundings: Surroundings) -> None:
        """It is served from now on."""
        self.instance.join(surroundings)

    async def learn_labels(self) -> None:
        """Take over the labels that ``labels`` tells, for outputs that have none of their own."""
        assert self.labels is not None  # noqa: S101
        told = await self.labels()
        outputs = tuple(
            spec if spec.name in self._labelled else replace(spec, labels=told.get(spec.name, ()))
            for spec in self.signature.outputs
        )
        if outputs != self.signature.outputs:
            self.signature = replace(self.signature, outputs=outputs)

    def readiness(self) -> Readiness:
        """Whether its instance is ready."""
        return self.instance.readiness()

    async def close(self) -> None:
        """Finish what runs and free the instance."""
        await self.instance.close()
