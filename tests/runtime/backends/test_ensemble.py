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
from schemas import ErrorCode, InferenceError, InferRequest, Readiness, Tensor


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
