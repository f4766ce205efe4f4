"""Calls that only read go on at another server when one is about to stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.wire import BrpcAnswer
from interlingua.runtime.upstream.pool import Member, Pool, Probes
from interlingua.runtime.upstream.reading import read_from
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import ErrorCode, InferenceError, ModelRef, Operation, Readiness
from tests.runtime.upstream.test_upstream_pool import CALLS, Server, encoded

MODEL = ModelRef("m")


def _read_ready(form: None, answer: BrpcAnswer) -> Readiness:
    return Readiness(answer.message == b"yes")


CALLS_OF_A_MODEL: Mapping[Operation, UpstreamCall[Any, Any]] = {
    **CALLS,
    Operation.MODEL_READY: UpstreamCall(encoded, _read_ready),
}


def upstream(*servers: Server, probes: Probes | None = None) -> Upstream:
    pool = Pool([Member(server, f"10.0.0.{place}:1") for place, server in enumerate(servers)], probes)
    return Upstream("there", CALLS_OF_A_MODEL, pool, 5.0)


async def ready(target: Upstream) -> bool:
    answer: Readiness = await read_from(target, Operation.MODEL_READY, MODEL)
    return answer.ready


async def test_a_model_is_ready_while_one_of_two_servers_leaves() -> None:
    leaving, staying = Server(answer=b"yes"), Server(answer=b"yes")
    target = upstream(leaving, staying, probes=Probes(60.0, 5.0))
    assert [await ready(target) for _ in range(4)] == [True] * 4
    leaving.ready = leaving.answer = b"no"
    leaving.executed.clear()
    assert [await ready(target) for _ in range(6)] == [True] * 6
    assert len(leaving.executed) == 1, "the probe has taken it out"
    await target.close()


async def test_a_server_whose_probe_is_refused_leaves_too() -> None:
    leaving, staying = Server(answer=b"yes"), Server(answer=b"yes")
    target = upstream(leaving, staying, probes=Probes(60.0, 5.0))
    leaving.fault = lambda: InferenceError(ErrorCode.UNAVAILABLE, "Server exiting")
    assert [await ready(target) for _ in range(6)] == [True] * 6
    assert len(leaving.executed) == 1
    await target.close()


async def test_metadata_come_from_the_server_that_stays() -> None:
    leaving, staying = Server(code=1, ready=b"no"), Server(answer=b"metadata")
    target = upstream(leaving, staying, probes=Probes(60.0, 5.0))
    for _ in range(4):
        assert await read_from(target, Operation.MODEL_METADATA, MODEL) == b"metadata"
    await target.close()


async def test_a_model_that_no_server_has_is_not_ready() -> None:
    servers = [Server(answer=b"no"), Server(answer=b"no")]
    target = upstream(*servers, probes=Probes(60.0, 5.0))
    assert [await ready(target) for _ in range(10)] == [False] * 10
    assert sum(len(server.executed) for server in servers) == 10, "both work: the answer stands"
    assert all(server.probed < 5 for server in servers), "not once for each call"
    await target.close()


@pytest.mark.parametrize("probes", [None, Probes(60.0, 5.0)])
async def test_the_answer_of_a_single_server_stands(probes: Probes | None) -> None:
    only = Server(code=1, ready=b"no")
    target = upstream(only, probes=probes)
    with pytest.raises(InferenceError, match="not now") as caught:
        await read_from(target, Operation.MODEL_METADATA, MODEL)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert len(only.executed) == 1
    await target.close()


async def test_without_probes_the_answer_stands() -> None:
    target = upstream(Server(answer=b"no"), Server(answer=b"no"))
    assert not await ready(target)
    await target.close()
