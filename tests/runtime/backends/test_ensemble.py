"""Running the steps of an ensemble; what the models themselves do is tested behind the daemon."""

import asyncio
import gc
from typing import Any, cast

import numpy as np
import pytest

from runtime.backends import Surroundings
from runtime.backends.ensemble import EnsembleInstance
from runtime.ensemble import Step, plan
from runtime.target import Target
from schemas import ErrorCode, InferenceError, InferRequest, InferResponse, Readiness, Tensor


class Fails:
    """A model that fails in the same round of the loop as any other of its kind."""

    async def infer(self, request: InferRequest) -> Any:
        await asyncio.sleep(0)
        raise InferenceError(ErrorCode.MODEL_FAILED, "no")


async def test_steps_that_fail_together_are_one_failure() -> None:
    steps = plan(
        [Step("one", {"x": "in"}, {"y": "a"}), Step("two", {"x": "in"}, {"y": "b"})], ["in"], ["a", "b"]
    )
    ensemble = EnsembleInstance("both", steps)
    ensemble.join(
        Surroundings(lambda name: cast(Target, Fails()), lambda *_: Readiness(True), lambda: None, None)
    )
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    given = (Tensor.from_numpy("in", np.ones(1, np.float32)),)
    with pytest.raises(InferenceError, match=r"^in ensemble 'both', step '(one|two)': no$"):
        await anext(ensemble.stream(InferRequest("both", given), given, ("a", "b")))
    gc.collect()
    await asyncio.sleep(0)
    assert told == [], "a failure that nobody has asked for is told as one that nobody has foreseen"


@pytest.mark.parametrize(("fails", "begun"), [("one", False), ("two", True)])
async def test_a_step_after_others_fails_when_some_work_is_done(fails: str, begun: bool) -> None:
    """Such a request may not be given to another model; one whose first step is refused may."""

    class Model:
        def __init__(self, name: str) -> None:
            self.name = name

        async def infer(self, request: InferRequest) -> InferResponse:
            if self.name == fails:
                raise InferenceError(ErrorCode.UNAVAILABLE, "not now")
            return InferResponse(self.name, (request.inputs[0].renamed("y"),))

    steps = plan([Step("one", {"x": "in"}, {"y": "a"}), Step("two", {"x": "a"}, {"y": "b"})], ["in"], ["b"])
    ensemble = EnsembleInstance("both", steps)
    ensemble.join(
        Surroundings(lambda name: cast(Target, Model(name)), lambda *_: Readiness(True), lambda: None, None)
    )
    given = (Tensor.from_numpy("in", np.ones(1, np.float32)),)
    with pytest.raises(InferenceError) as caught:
        await anext(ensemble.stream(InferRequest("both", given), given, ("b",)))
    assert caught.value.retryable
    assert caught.value.begun is begun
