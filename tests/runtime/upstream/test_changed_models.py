"""A server replaces its model while requests come: those that fit the new model are answered from the first on."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest

from interlingua.protocols.registry import DIALECTS
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Context,
    Datatype,
    InferenceError,
    InferRequest,
    Operation,
    RequestedOutput,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.schemas import Sequence as SequencePlace
from interlingua.translator.serving.router import Router
from tests.loopback import LOOPBACKS, behind, echoing, serving

FP32, INT32 = Datatype.FP32, Datatype.INT32
Wire = tuple[str, str]


class Model(NamedTuple):
    """A model that returns its input, and the shape of a request to it."""

    datatype: Datatype
    declared: tuple[int, ...]
    largest: int
    shape: tuple[int, ...]

    @property
    def signature(self) -> Signature:
        specs = (TensorSpec("a", self.datatype, self.declared),)
        return Signature(specs, specs, self.largest)


class Bridge:
    """A client of ``caller``, and a daemon between it and the server of ``model``, which speaks ``server``."""

    def __init__(self, caller: Wire, server: Wire, model: Model) -> None:
        self.far = serving(echoing({"m": model.signature}), server[0])
        self.target = behind(self.far, *server, "m")
        near = serving({"m": self.target}, caller[0], default_model="m")
        self.binding = DIALECTS[caller[0]].bindings[caller[1]]
        self.client = Upstream("client", self.binding.calls, [LOOPBACKS[caller[1]](near)], 5.0)

    def replace(self, model: Model) -> None:
        self.far.service.router = Router(echoing({"m": model.signature}))

    async def ask(self, model: Model, sequence: SequencePlace | None = None) -> str:
        """The error of a request that fits ``model``, empty for an answer."""
        data = bytes(int(np.prod(model.shape)) * model.datatype.itemsize)
        tensor = Tensor.checked("a", model.datatype, model.shape, data)
        name = "m" if self.binding.capability.many_models else ""
        request = InferRequest(name, (tensor,), (RequestedOutput("a"),), sequence=sequence)
        try:
            await self.client.call(Operation.INFER, request, model.signature)
        except InferenceError as error:
            return error.message
        return ""


CHANGES = {
    "datatype of one size": (Model(FP32, (2,), 0, (2,)), Model(INT32, (2,), 0, (2,))),
    "datatype of another size": (Model(FP32, (2,), 0, (2,)), Model(Datatype.FP64, (2,), 0, (2,))),
    "shape": (Model(FP32, (2,), 0, (2,)), Model(FP32, (3,), 0, (3,))),
    "no more batches": (Model(FP32, (-1, 2), 4, (1, 2)), Model(FP32, (2,), 0, (2,))),
    "the same shape without batches": (Model(FP32, (-1, 2), 4, (1, 2)), Model(FP32, (1, 2), 0, (1, 2))),
    "batches": (Model(FP32, (1, 2), 0, (1, 2)), Model(FP32, (-1, 2), 4, (1, 2))),
    "larger batches": (Model(FP32, (-1, 2), 2, (2, 2)), Model(FP32, (-1, 2), 8, (5, 2))),
}
OIP, TRTIS = ("oip", "http"), ("trtis", "http")
BRIDGES = [(TRTIS, OIP), (("trtis", "grpc"), ("oip", "grpc")), (OIP, TRTIS), (("tfserving", "http"), OIP)]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("caller", "server"), BRIDGES)
async def test_the_first_request_after_a_change_is_answered(caller: Wire, server: Wire, change: str) -> None:
    """Also one that fits the old signature, so that the server refuses what it was translated to."""
    old, new = CHANGES[change]
    bridge = Bridge(caller, server, old)
    assert not await bridge.ask(old)
    bridge.replace(new)
    assert not await bridge.ask(new)


@pytest.mark.parametrize("caller", [OIP, TRTIS])
async def test_requests_after_two_changes_in_a_moment_are_answered(caller: Wire) -> None:
    models = [Model(FP32, (width,), 0, (width,)) for width in (2, 3, 4, 5)]
    bridge = Bridge(caller, OIP, models[0])
    for model in models:
        bridge.replace(model)
        assert not await bridge.ask(model)


async def test_a_request_of_a_sequence_is_not_sent_again() -> None:
    old, new = CHANGES["datatype of one size"]
    bridge = Bridge(TRTIS, OIP, old)
    assert not await bridge.ask(old)
    bridge.replace(new)
    assert "expects 'TYPE_INT32'" in await bridge.ask(new, SequencePlace(7, True, False))


async def test_a_signature_is_renewed_ten_times_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    model, other = Model(FP32, (2,), 0, (2,)), Model(FP32, (3,), 0, (3,))
    bridge = Bridge(OIP, OIP, model)
    assert not await bridge.ask(model)
    found: list[int] = []
    discover = type(bridge.target._signatures)._discover

    async def discovering(*arguments: object) -> object:
        found.append(time.monotonic_ns())
        return await discover(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(type(bridge.target._signatures), "_discover", discovering)
    known = bridge.target._signatures.known("")
    for _ in range(3):
        assert all(await asyncio.gather(*[bridge.ask(other) for _ in range(10)]))
    # a request that comes while one is under way waits for the next
    assert 3 <= len(found) <= 6
    assert all(after - before >= 0.99e8 for before, after in pairwise(found))
    assert bridge.target._signatures.known("") is known, "what has been learned for it stays"


async def test_one_request_renews_a_signature_once() -> None:
    bridge = Bridge(OIP, OIP, Model(FP32, (2,), 0, (2,)))
    signatures = bridge.target._signatures
    context = Context(began=time.monotonic_ns())
    known = await signatures.renewed("", context.began)
    assert await signatures.renewed("", context.began) is known
    assert known.found > context.began and known.renewal is None
