"""Every caller before every upstream, with requests that repeat but for their tensors: those go on by other
ways than a first one. The same world as the matrix."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest
import requests

from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import Datatype, InferRequest, InferResponse, Operation, Tensor
from interlingua.translator.fidelity import tensors
from interlingua.translator.fidelity.parties import Party, callers, targets
from interlingua.translator.fidelity.verdict import Outcome
from tests.e2e.matrix_models import SUBJECTS
from tests.e2e.matrix_world import World, label, world

PAIRS = [(caller, name) for caller in callers() for name, target in targets().items() if target.dialect]
TURNS, AT_ONCE = 4, 4
SIZES = 5, 5, 5, 3, 5, 5


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("r")) as both:
        yield both


async def _ask(upstream: Upstream, subject: str, request: InferRequest) -> InferResponse:
    answer: InferResponse = await upstream.call(Operation.INFER, request, SUBJECTS[subject])
    return answer


def _request(caller: Party, target: Party, subject: str, *inputs: Tensor) -> InferRequest:
    return InferRequest(label(target, subject) if caller.capability.many_models else "", inputs)


def _random(rng: np.random.Generator, datatype: Datatype, size: int) -> Tensor:
    if datatype is Datatype.BYTES:
        return Tensor.from_numpy("x", np.array([rng.bytes(3).hex().encode() for _ in range(size)], object))
    if datatype is Datatype.BOOL:
        return Tensor.from_numpy("x", rng.random(size) < 0.5)
    if datatype in (Datatype.FP16, Datatype.BF16, Datatype.FP32, Datatype.FP64):
        return Tensor.from_numpy("x", rng.standard_normal(size).astype(datatype.dtype))
    limits = np.iinfo(datatype.dtype)
    return Tensor.from_numpy("x", rng.integers(limits.min, limits.max, size, datatype.dtype, endpoint=True))


def _is_exact(caller: Party, target: Party, datatype: Datatype) -> bool:
    ways = tensors.sent(caller, target, datatype), tensors.answered(caller, target, datatype)
    return all(way.outcome is Outcome.EXACT for way in ways)


@pytest.mark.parametrize(("caller", "target"), PAIRS)
def test_answers_belong_to_their_requests(running: World, caller: str, target: str) -> None:
    here, there = callers()[caller], targets()[target]
    rng = np.random.default_rng(0)

    async def two_inputs(upstream: Upstream, rows: int) -> None:
        a, b = rng.integers(-(2**30), 2**30, (2, rows, 3), np.int32)
        request = _request(here, there, "add_sub", Tensor.from_numpy("a", a), Tensor.from_numpy("b", b))
        answer = {each.name: each.numpy() for each in (await _ask(upstream, "add_sub", request)).outputs}
        assert (answer["sum"] == a + b).all()
        assert (answer["difference"] == a - b).all()

    async def one_input(upstream: Upstream, datatype: Datatype, size: int) -> None:
        given = _random(rng, datatype, size)
        request = _request(here, there, f"same_{datatype.value}", given)
        (got,) = (await _ask(upstream, f"same_{datatype.value}", request)).outputs
        assert got == given.renamed("y")

    def client(subject: str) -> Upstream:
        return running.client(here, label(there, subject))

    # each pair has a third of the datatypes, its neighbours the others
    datatypes = [datatype for datatype in Datatype if _is_exact(here, there, datatype)]
    datatypes = datatypes[PAIRS.index((caller, target)) % 3 :: 3]
    adding = client("add_sub")
    same = {datatype: client(f"same_{datatype.value}") for datatype in datatypes}

    async def every() -> None:
        for _ in range(TURNS):
            await asyncio.gather(*[two_inputs(adding, 2) for _ in range(AT_ONCE)])
        for rows in (1, 4, 2, 2, 2):
            await two_inputs(adding, rows)
        for datatype, upstream in same.items():
            for size in SIZES:
                await one_input(upstream, datatype, size)

    running.background.run(every())


@pytest.mark.parametrize(("caller", "target"), PAIRS)
def test_statistics_have_every_request(running: World, caller: str, target: str) -> None:
    here, there = callers()[caller], targets()[target]
    model = label(there, "add_sub")
    row = np.zeros((1, 3), np.int32)
    upstream = running.client(here, model)

    def count() -> int:
        answer = requests.get(f"http://{running.addresses['http']}/v2/models/{model}/stats", timeout=30)
        return sum(int(each["inference_count"]) for each in answer.json()["model_stats"])

    counted = []
    for _ in range(AT_ONCE + TURNS):
        request = _request(here, there, "add_sub", Tensor.from_numpy("a", row), Tensor.from_numpy("b", row))
        running.background.run(_ask(upstream, "add_sub", request))
        counted.append(count())
    assert counted == list(range(counted[0], counted[0] + len(counted)))
