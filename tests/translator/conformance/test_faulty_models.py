"""Faults behind every wire: a server whose models answer wrong, in each dialect over each transport."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from interlingua.protocols.registry import bindings
from interlingua.schemas import (
    Datatype,
    InferRequest,
    InferResponse,
    Signature,
    Tensor,
    TensorSpec,
    pack_bytes,
)
from interlingua.translator.conformance.answers import ANSWERS
from interlingua.translator.conformance.discovery import discover
from interlingua.translator.conformance.kit import CheckResult, Effort, run_all
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.wires import wires
from tests.loopback import LOOPBACKS, echoing, serving

EFFORT = Effort(examples=8, secs=2, shrink=False)


def signature(datatype: Datatype, names: int = 1, batch: int = 0) -> Signature:
    shape = (-1, 4) if batch else (-1,)
    inputs, outputs = (
        tuple(TensorSpec(f"{side}{n}", datatype, shape) for n in range(names)) for side in ("INPUT", "OUTPUT")
    )
    return Signature(inputs, outputs, batch)


SIGNATURES = {
    "pair": signature(Datatype.INT32, 2, 4),
    "words": signature(Datatype.BYTES),
    "wide": signature(Datatype.INT64),
    "numbers": signature(Datatype.FP32),
}

Fault = Callable[[InferResponse, int, list[Any]], InferResponse]


@dataclass
class Faulty:
    """A target whose answers go through ``fault``, which gets their number and a memory of its own."""

    inner: Any
    fault: Fault

    def __post_init__(self) -> None:
        self.asked = 0
        self.memory: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def infer(self, request: InferRequest) -> InferResponse:
        self.asked += 1
        return self.fault(await self.inner.infer(request), self.asked, self.memory)


def failure(wire: str, model: str, fault: Fault) -> CheckResult | None:
    """The first thing that the checks of answers find at ``model`` behind ``wire``."""
    binding = bindings()[wire]
    models: dict[str, Any] = {model: Faulty(echoing(SIGNATURES)[model], fault)}
    client = LOOPBACKS[binding.transport](serving(models, binding.dialect, default_model=model))
    asked = model if binding.capability.many_models else ""
    server = ServerUnderTest(binding, "localhost:1", wires()[wire], asked, client=client)
    with server:
        discover(server, SIGNATURES[model])
        assert not server.silent
        return next((one for one in run_all(server, ANSWERS.checks, EFFORT) if one.status.bad), None)


def changed(response: InferResponse, change: Callable[[np.ndarray], np.ndarray]) -> InferResponse:
    return replace(
        response,
        outputs=tuple(
            Tensor.from_numpy(one.name, change(one.numpy().copy()), one.datatype) for one in response.outputs
        ),
    )


def unchanged(response: InferResponse, number: int, memory: list[Any]) -> InferResponse:
    return response


def wrong_value(response: InferResponse, number: int, memory: list[Any]) -> InferResponse:
    def change(array: np.ndarray) -> np.ndarray:
        array.flat[-1] += 1
        return array

    return changed(response, change) if number % 4 == 0 else response


def swapped(response: InferResponse, number: int, memory: list[Any]) -> InferResponse:
    if number % 3:
        return response
    (one, first), (other, second) = ((output.name, output) for output in response.outputs)
    return replace(response, outputs=(second.renamed(one), first.renamed(other)))


def stale(response: InferResponse, number: int, memory: list[Any]) -> InferResponse:
    before, memory[:] = (memory or [response])[0], [response]
    return before if number % 5 == 0 else response


def rows_reversed(response: InferResponse, number: int, memory: list[Any]) -> InferResponse:
    return changed(response, lambda array: array[::-1])


def row_repeated(response: InferResponse, number: int, memory: list[Any]) -> InferResponse:
    return changed(response, lambda array: np.repeat(array[:1], len(array), axis=0))


def wrapped(response: InferResponse, number: int, memory: list[Any]) -> InferResponse:
    return changed(response, lambda array: array.astype(np.int32).astype(np.int64))


def cut_words(response: InferResponse, number: int, memory: list[Any]) -> InferResponse:
    [output] = response.outputs
    packed = pack_bytes(word[:3] for word in output.elements())
    return replace(response, outputs=(replace(output, data=memoryview(packed)),))


def minus_zero_lost(response: InferResponse, number: int, memory: list[Any]) -> InferResponse:
    return changed(response, lambda array: array + np.float32(0))


def one_more_dimension(response: InferResponse, number: int, memory: list[Any]) -> InferResponse:
    return changed(response, lambda array: array[..., np.newaxis])


FAULTS = [
    ("pair", wrong_value),
    ("pair", swapped),
    ("pair", stale),
    ("pair", rows_reversed),
    ("pair", row_repeated),
    ("wide", wrapped),
    ("words", cut_words),
    ("numbers", minus_zero_lost),
    ("numbers", one_more_dimension),
]


@pytest.mark.parametrize("wire", wires())
@pytest.mark.parametrize("model", ["pair", "words"])
def test_a_right_model_passes(wire: str, model: str) -> None:
    assert failure(wire, model, unchanged) is None


@pytest.mark.parametrize("wire", wires())
@pytest.mark.parametrize(("model", "fault"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_wrong_model_is_found(wire: str, model: str, fault: Fault) -> None:
    assert failure(wire, model, fault) is not None
