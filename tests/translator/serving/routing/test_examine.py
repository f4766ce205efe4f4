from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from interlingua.runtime.target import Target
from interlingua.schemas import Datatype, ErrorCode, InferenceError, Signature, TensorSpec
from interlingua.translator.serving.routing import examine
from interlingua.translator.serving.routing.examine import Examiner, oddities
from interlingua.translator.serving.routing.names import Names
from interlingua.translator.serving.routing.route import Route
from interlingua.translator.serving.routing.split import Part, Split


def signature(inputs: str, outputs: str = "y:FP32") -> Signature:
    def specs(text: str) -> tuple[TensorSpec, ...]:
        pairs = [each.split(":") for each in text.split()]
        return tuple(TensorSpec(name, Datatype[datatype], (-1,)) for name, datatype in pairs)

    return Signature(specs(inputs), specs(outputs))


ROUTE = Route(Split([Part("a"), Part("b"), Part("c", 0)]), names=Names({"image": "x"}, {}), fallback="d")


@pytest.mark.parametrize(
    ("signatures", "odd"),
    [
        ({}, []),
        ({"a": signature("x:FP32"), "b": signature("x:FP32"), "c": signature("z:INT8")}, []),
        ({"b": signature("x:FP32")}, []),
        (
            {"a": signature("x:FP32"), "b": signature("x:FP16")},
            ["models differ in input 'x': 'a' has FP32 [-1], 'b' FP16 [-1]"],
        ),
        (
            {"a": signature("x:FP32"), "d": signature("x:FP32", "y:FP32 z:FP32")},
            ["models differ in output 'z': 'a' has none, 'd' FP32 [-1]"],
        ),
        ({"a": signature("image:FP32")}, ["model 'a' has no input 'x', which the route renames"]),
    ],
)
def test_what_is_odd(signatures: dict[str, Signature], odd: list[str]) -> None:
    assert list(oddities(ROUTE, signatures)) == odd


class Model(Target):
    def __init__(self, told: Signature, away: bool = False) -> None:
        self.told = told
        self.away = away

    async def signature(self, version: str = "") -> Signature:
        if self.away:
            raise InferenceError(ErrorCode.UNAVAILABLE, "not now")
        return self.told


async def test_models_are_queried_until_they_answer(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examine, "_AGAIN_SECS", (0.0,))
    models: Any = {"a": Model(signature("x:FP32")), "b": Model(signature("x:FP16"), away=True)}
    examiner = Examiner([ROUTE], models)
    examiner.start()
    await asyncio.sleep(0.01)
    assert not caplog.records
    models["b"].away = False
    await asyncio.wait_for(examiner.known(), 30)
    (record,) = caplog.records
    facts = SimpleNamespace(**vars(record)).facts
    assert facts == {"route": 1, "reason": "models differ in input 'x': 'a' has FP32 [-1], 'b' FP16 [-1]"}
    await examiner.stop()


async def test_nothing_to_examine() -> None:
    examiner = Examiner([], {})
    examiner.start()
    await examiner.stop()


async def test_it_stops_while_a_model_is_away() -> None:
    models: Any = {"a": Model(signature("x:FP32"), away=True)}
    examiner = Examiner([ROUTE], models)
    examiner.start()
    await asyncio.sleep(0.01)
    await asyncio.wait_for(examiner.stop(), 30)
