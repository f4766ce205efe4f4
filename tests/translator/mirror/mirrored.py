"""What the tests of mirrors share: requests, a model that answers as it is told, and callers of it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np

from interlingua.schemas import Context, ErrorCode, InferenceError, InferRequest, InferResponse, Tensor
from interlingua.schemas import Sequence as Place
from interlingua.translator.config.mirror import MirrorOptions
from interlingua.translator.mirror import Mirror
from interlingua.translator.mirror.judge import LocalJudge
from interlingua.translator.serving.observation import Observed
from tests.waiting import until

_NUMBERS = itertools.count(1)

GONE = InferenceError(ErrorCode.UNAVAILABLE, "gone")


def tensor(*values: float, name: str = "out") -> Tensor:
    return Tensor.from_numpy(name, np.array(values, np.float32))


def request(*values: float, sequence: Place | None = None, **more: Any) -> InferRequest:
    context = Context(request_number=next(_NUMBERS))
    return InferRequest("m", (tensor(*values, name="in"),), sequence=sequence, context=context, **more)


class Model:
    """A ``Target`` that keeps what it is asked and answers with what ``answer`` makes of it: an answer, an
    error, or for a stream several; when ``open`` is set."""

    name = "other"

    def __init__(self, answer: Callable[[InferRequest], Any] | None = None) -> None:
        self.answer = answer or (lambda asked: InferResponse("other", (asked.inputs[0].renamed("out"),)))
        self.asked: list[InferRequest] = []
        self.open = asyncio.Event()
        self.open.set()

    async def infer(self, asked: InferRequest) -> InferResponse:
        self.asked.append(asked)
        await self.open.wait()
        answer = self.answer(asked)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, InferResponse)
        return answer

    async def stream(self, asked: InferRequest) -> AsyncIterator[InferResponse]:
        self.asked.append(asked)
        for answer in self.answer(asked):
            await self.open.wait()
            if isinstance(answer, Exception):
                raise answer
            yield answer


def mirror(model: Model, chance: Callable[[], float] = lambda: 0.0, **options: Any) -> Mirror:
    """A mirror to ``model``."""
    settings = MirrorOptions.model_construct(to="other", **options)

    def find(name: str) -> Any:
        assert name == "other"
        return model

    return Mirror(settings, LocalJudge(settings, find), "route", chance)


def answered(
    asked: InferRequest, *responses: Tensor | InferResponse, error: InferenceError | None = None, **more: Any
) -> Observed:
    """What is told of ``asked`` once it was answered with ``responses``, or outputs of a single one."""
    given: Sequence[InferResponse]
    if all(isinstance(each, Tensor) for each in responses):
        outputs = tuple(each for each in responses if isinstance(each, Tensor))
        given = (InferResponse("m", outputs),) if outputs or error is None else ()
    else:
        given = tuple(each for each in responses if isinstance(each, InferResponse))
    return Observed(asked, more.pop("by", "m"), "oip", "here:1", given, error, 2_000_000, **more)


async def settled(mirror: Mirror) -> None:
    """Wait until nothing is held."""
    await asyncio.sleep(0)
    await until(lambda: not mirror.report.held)
