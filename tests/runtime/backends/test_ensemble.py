"""Running the steps of an ensemble; what the models themselves do is tested behind the daemon."""

import asyncio
import gc
from typing import Any, cast

import numpy as np
import pytest

from interlingua.runtime.backends.ensemble import EnsembleInstance
from interlingua.runtime.models.ensemble import Step, plan
from interlingua.runtime.target import ServerHooks, Target
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Readiness,
    Signature,
    Tensor,
    TensorSpec,
)

PLAIN = Signature((TensorSpec("x", Datatype.FP32, (1,)),), (TensorSpec("y", Datatype.FP32, (1,)),))


class Described(Target):
    """A model that is asked what it is before it is asked for an answer."""

    described = PLAIN

    async def signature(self, version: str = "") -> Signature:
        return self.described


class Fails(Described):
    """A model that fails in the same round of the loop as any other of its kind."""

    async def infer(self, request: InferRequest) -> Any:
        await asyncio.sleep(0)
        raise InferenceError(ErrorCode.MODEL_FAILED, "no")


class Records(Described):
    """An identity that keeps the shapes that it was given."""

    def __init__(self, described: Signature) -> None:
        self.described = described
        self.given: list[tuple[int, ...]] = []

    async def infer(self, request: InferRequest) -> InferResponse:
        (tensor,) = request.inputs
        self.given.append(tensor.shape)
        return InferResponse("step", (tensor.renamed("y"),))


def described(dims: tuple[int, ...], batches: int, names: tuple[str, str] = ("x", "y")) -> Signature:
    shape = (-1, *dims) if batches else dims
    given, gives = (TensorSpec(name, Datatype.FP32, shape) for name in names)
    return Signature((given,), (gives,), batches)


@pytest.mark.parametrize(
    ("ensemble", "step", "given", "seen", "gets"),
    [
        # the dimensions fit but for the batch: it is a batch of one, and none again in the answer
        (((16,), 0), ((16,), 8), (16,), (1, 16), (16,)),
        (((-1,), 0), ((-1,), 8), (5,), (1, 5), (5,)),
        (((16,), 8), ((16,), 0), (1, 16), (16,), (1, 16)),
        (((), 0), ((), 8), (), (1,), ()),
        # they fit with it: the first dimension is the batch
        (((-1, 16), 0), ((16,), 8), (3, 16), (3, 16), (3, 16)),
        (((16,), 8), ((-1, 16), 0), (3, 16), (3, 16), (3, 16)),
        # alike
        (((16,), 8), ((16,), 8), (3, 16), (3, 16), (3, 16)),
        # neither: the model of the step says so
        (((16,), 0), ((8,), 8), (16,), (16,), (16,)),
        (((16,), 8), ((16,), 0), (3, 16), (3, 16), (3, 16)),
    ],
)
async def test_a_step_with_batches_in_an_ensemble_without_gets_a_batch_of_one(
    ensemble: Any, step: Any, given: Any, seen: Any, gets: Any
) -> None:
    model = Records(described(*step))
    steps = plan([Step("step", {"x": "in"}, {"y": "out"})], ["in"], ["out"])
    instance = EnsembleInstance("both", steps, described(*ensemble, names=("in", "out")))
    instance.join(
        ServerHooks(lambda name: cast(Target, model), lambda *_: Readiness(True), lambda: None, None)
    )
    inputs = (Tensor.from_numpy("in", np.ones(given, np.float32)),)
    answer = await anext(instance.stream(InferRequest("both", inputs), inputs, ("out",)))
    assert model.given == [seen]
    assert answer.outputs[0].shape == gets


async def test_steps_that_fail_together_are_one_failure() -> None:
    steps = plan(
        [Step("one", {"x": "in"}, {"y": "a"}), Step("two", {"x": "in"}, {"y": "b"})], ["in"], ["a", "b"]
    )
    ensemble = EnsembleInstance("both", steps)
    ensemble.join(
        ServerHooks(lambda name: cast(Target, Fails()), lambda *_: Readiness(True), lambda: None, None)
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

    class Model(Described):
        def __init__(self, name: str) -> None:
            self.name = name

        async def infer(self, request: InferRequest) -> InferResponse:
            if self.name == fails:
                raise InferenceError(ErrorCode.UNAVAILABLE, "not now")
            return InferResponse(self.name, (request.inputs[0].renamed("y"),))

    steps = plan([Step("one", {"x": "in"}, {"y": "a"}), Step("two", {"x": "a"}, {"y": "b"})], ["in"], ["b"])
    ensemble = EnsembleInstance("both", steps)
    ensemble.join(
        ServerHooks(lambda name: cast(Target, Model(name)), lambda *_: Readiness(True), lambda: None, None)
    )
    given = (Tensor.from_numpy("in", np.ones(1, np.float32)),)
    with pytest.raises(InferenceError) as caught:
        await anext(ensemble.stream(InferRequest("both", given), given, ("b",)))
    assert caught.value.retryable
    assert caught.value.begun is begun
