"""A model by the names of a route's callers, there and back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from interlingua.runtime.target import Target
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelState,
    ModelStatus,
    Readiness,
    RequestedOutput,
    Signature,
    Tensor,
    TensorSpec,
    VersionStatus,
)
from interlingua.schemas.oip import MESSAGES
from interlingua.translator.serving.routing.names import Names, View


def spec(name: str) -> TensorSpec:
    return TensorSpec(name, Datatype.INT32, (-1,))


class Model(Target):
    """Adds one; notes what it was asked."""

    name = "m"

    def __init__(self) -> None:
        self.asked: Any = None
        self.told = Signature((spec("in"), spec("more")), (spec("out"),), 4)

    async def infer(self, request: InferRequest) -> InferResponse:
        self.asked = request
        output = Tensor.from_numpy("out", request.inputs[0].numpy() + 1)
        return InferResponse("m", (output,), request.version or "5", request.id)

    async def stream(self, request: InferRequest) -> AsyncIterator[InferResponse]:
        for _ in range(2):
            yield await self.infer(request)

    async def signature(self, version: str = "") -> Signature:
        self.asked = version
        return self.told

    async def metadata(self, version: str = "") -> ModelMetadata:
        self.asked = version
        return ModelMetadata("m", self.told, ("3", "5"))

    async def status(self) -> ModelStatus:
        config: Any = MESSAGES["inference.ModelConfig"](name="m")
        config.input.add(name="in")
        config.output.add(name="out")
        versions = tuple(VersionStatus(number, ModelState.READY) for number in ("3", "5"))
        return ModelStatus("m", config.SerializeToString(), versions)

    async def ready(self, version: str = "") -> Readiness:
        self.asked = version
        return Readiness(True)

    async def close(self) -> None: ...


NAMES = Names({"image": "in"}, {"prob": "out"}, {"1": "3", "*": ""})


def question(version: str = "") -> InferRequest:
    given = Tensor.from_numpy("image", np.array([1, 2], np.int32))
    return InferRequest("alias", (given,), (RequestedOutput("prob", 3),), version, "7")


@pytest.mark.parametrize(
    ("asked", "theirs", "told"), [("1", "3", "1"), ("", "", "5"), ("12", "", "12"), ("3", "", "3")]
)
async def test_names_there_and_back(asked: str, theirs: str, told: str) -> None:
    model = Model()
    view = View(model, NAMES, "alias")
    request = question(asked)
    answer = await view.infer(request)
    assert [tensor.name for tensor in model.asked.inputs] == ["in"]
    assert model.asked.outputs == (RequestedOutput("out", 3),)
    assert (model.asked.version, answer.version) == (theirs, told)
    assert [tensor.name for tensor in answer.outputs] == ["prob"]
    assert answer.outputs[0].numpy().tolist() == [2, 3]
    assert request == question(asked), "the caller's request is as it was"
    assert [each.outputs[0].name async for each in view.stream(request)] == ["prob", "prob"]
    for ask in (view.signature, view.metadata, view.ready):
        await ask(asked)
        assert model.asked == theirs


@pytest.mark.parametrize(
    ("asked", "ran", "told"),
    [("1", "3", "1"), ("2", "3", "2"), ("3", "3", "3"), ("5", "5", "5"), ("", "3", "1"), ("03", "3", "1")],
)
def test_a_requested_version_is_reported_as_the_one_that_answered(asked: str, ran: str, told: str) -> None:
    assert Names(versions={"1": "3", "2": "3"}).reported_version(ran, asked) == told


async def test_the_models_own_names_are_refused() -> None:
    given = Tensor.from_numpy("in", np.array([1, 2], np.int32))
    for asked, said in (
        (InferRequest("alias", (given,)), "input 'in' for model 'alias': it is called 'image' here"),
        (replace(question(), outputs=(RequestedOutput("out"),)), "output 'out' .* 'prob' here"),
    ):
        with pytest.raises(InferenceError, match=said) as caught:
            await View(Model(), NAMES, "alias").infer(asked)
        assert caught.value.code is ErrorCode.INVALID_TENSOR
    swapped = Names(outputs={"a": "b", "b": "a"})
    asked = swapped.translated(replace(question(), outputs=(RequestedOutput("a"), RequestedOutput("b"))))
    assert [output.name for output in asked.outputs or ()] == ["b", "a"]


async def test_a_signature_is_one_and_the_same() -> None:
    model = Model()
    view = View(model, NAMES, "alias")
    ours = await view.signature("1")
    assert [each.name for each in (*ours.inputs, *ours.outputs)] == ["image", "more", "prob"]
    assert ours.max_batch_size == 4
    assert await view.signature("1") is ours
    for number in range(1000):
        NAMES.signature("m", str(number), model.told)
    assert await view.signature("1") == ours
    model.told = Signature((), ())
    assert await view.signature("1") == model.told, "the model has changed"


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ({}, ("3", "5")),
        ({"1": "3"}, ("1", "3", "5")),
        ({"1": "3", "*": ""}, ("1",)),
        ({"1": "3", "2": "3", "5": "3"}, ("1", "2", "5", "3")),
        ({"1": "9"}, ("3", "5")),
        ({"latest": "", "*": "3"}, ("latest", "3")),
        ({"*": ""}, ("3", "5")),
    ],
)
async def test_the_versions_that_callers_can_ask_for(versions: dict[str, str], told: tuple[str, ...]) -> None:
    names = Names(versions=versions)
    metadata = await View(Model(), names, "alias").metadata()
    assert (metadata.name, metadata.versions) == ("alias", told)
    if set(versions) != {"*"}:
        assert all(names.version(version) in ("3", "5", "") for version in metadata.versions)


async def test_the_status_as_callers_know_it() -> None:
    status = await View(Model(), NAMES, "alias").status()
    assert status.name == "alias"
    assert [version.version for version in status.versions] == ["1", "5"]
    config: Any = MESSAGES["inference.ModelConfig"].FromString(status.config)
    assert (config.name, config.input[0].name, config.output[0].name) == ("alias", "image", "prob")
    shadowed = Names(versions={"5": "3"}).status(await Model().status(), "alias")
    assert [(each.version, each.state) for each in shadowed.versions] == [("5", ModelState.READY)]
