"""How many Python calls of ours a request takes through the ring, both ends together; see ``benchmarks.calls``."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from benchmarks.calls import Calls, profiled
from benchmarks.ring import EchoModel, Row
from interlingua.runtime.ring.channel import create
from interlingua.runtime.ring.client import RuntimeClient
from interlingua.runtime.ring.server import RuntimeServer
from interlingua.schemas import InferRequest, Tensor
from interlingua.schemas.datatypes import Datatype

_TURNS = 12


async def _calls(row: Row) -> Calls:
    """The fewest of several requests, those of a bare call of the model not included."""
    here, there = create(64 << 20)
    client, model = RuntimeClient(here), EchoModel(None)
    server = RuntimeServer(there, lambda _: model, {}, lambda: None)
    own = memoryview(bytes(row.nbytes))

    def request() -> InferRequest:
        data = client.allocate(row.nbytes) if row.in_place else own
        assert data is not None
        return InferRequest("model", (Tensor("x", Datatype.UINT8, (row.nbytes,), data),))

    with profiled() as counting:
        found: list[Calls] = []
        for _ in range(_TURNS):
            given = request()
            counting.calls, counting.on = Counter(), True
            await client.infer(given, "model")
            counting.on = False
            del given
            found.append(counting.calls)
    client.close()
    await server.close()
    return min(found, key=Counter.total)


@pytest.mark.parametrize(("row", "most"), [(Row(64, 1, 1), 44), (Row(4 << 20, 1, 1, in_place=True), 62)])
def test_a_request_takes_so_many_calls(row: Row, most: int) -> None:
    calls = asyncio.run(_calls(row))
    assert calls.total() <= most, sorted(calls.items())
