"""Calls that not every server answers: which silence is a failure, and which is a habit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.wire import BrpcAnswer, BrpcRequest, ConnectionFailedError
from interlingua.runtime.upstream.pool import Member, Pool, Probes
from interlingua.runtime.upstream.pool import member as members_module
from interlingua.runtime.upstream.pool.unanswered import UnansweredError
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import ErrorCode, InferenceError, InferRequest, Operation, Readiness
from tests.waiting import until


def call(name: str) -> UpstreamCall[Any, Any]:
    def read(form: None, answer: BrpcAnswer) -> Any:
        return Readiness(True) if name == "ready" else bytes(answer.message)

    optional = None if name == "infer" else lambda answer: answer.message == b"what?"
    return UpstreamCall(
        lambda argument, signature: (BrpcRequest("s", name, b""), None), read, optional=optional
    )


CALLS = {
    Operation.INFER: call("infer"),
    Operation.MODEL_METADATA: call("metadata"),
    Operation.READY: call("ready"),
}


class Server:
    """A client of a server that says ``answer`` or fails by ``fault``; those of inference apart. ``asked`` are the
    methods in their order."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer = b"fine"
        self.fault: Callable[[], InferenceError] | None = None
        self.broken = False
        self.down = ""
        self.connected = 0

    async def send(self, request: BrpcRequest) -> BrpcAnswer:
        self.asked.append(request.method)
        if self.down:
            raise ConnectionFailedError(ErrorCode.UNAVAILABLE, self.down, sent=False)
        if request.method == "infer":
            if self.broken:
                raise closes()
            return BrpcAnswer(b"inferred")
        if self.fault is not None:
            raise self.fault()
        return BrpcAnswer(self.answer)

    async def reach(self) -> str:
        self.connected += 1
        return self.down

    async def close(self) -> None:
        pass


def closes() -> InferenceError:
    return ConnectionFailedError(ErrorCode.UNAVAILABLE, "closed the connection", sent=True)


def hangs() -> InferenceError:
    return InferenceError(ErrorCode.DEADLINE_EXCEEDED, "did not answer")


def speaks_otherwise() -> InferenceError:
    return ConnectionFailedError(ErrorCode.BAD_UPSTREAM, "does not speak that", sent=True)


def upstream(server: Server, probes: Probes | None = None) -> tuple[Upstream, Member]:
    member = Member(server, "10.0.0.1:1", 3, server.reach)
    return Upstream("there", CALLS, Pool([member], probes), 5.0), member


async def reported(target: Upstream, *, dispensable: bool = True) -> Any:
    return await target.call(Operation.MODEL_METADATA, dispensable=dispensable)


async def infer(target: Upstream) -> Any:
    return await target.call(Operation.INFER, InferRequest("m", ()))


@pytest.mark.parametrize("fault", [closes, hangs, None])
async def test_a_server_that_never_answered_is_silent_and_not_queried_again(
    fault: Callable[[], InferenceError] | None,
) -> None:
    server = Server()
    server.fault, server.answer = fault, b"what?"
    target, member = upstream(server)
    for _ in range(5):
        with pytest.raises(UnansweredError, match="declare its signature") as caught:
            await reported(target)
        assert caught.value.origin == "there" and caught.value.message.startswith("upstream 'there': ")
    assert (server.asked, member.failures, member.open) == (["metadata"], 0, False)
    assert await infer(target) == b"inferred"


async def test_it_is_queried_where_nothing_else_is_known() -> None:
    server = Server()
    server.fault = closes
    target, _ = upstream(server)
    for _ in range(3):
        with pytest.raises(UnansweredError):
            await reported(target, dispensable=False)
    server.fault = None
    assert await reported(target, dispensable=False) == b"fine"
    assert server.asked == ["metadata"] * 4


async def test_after_a_while_it_is_queried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members_module, "MUTE_SECS", 0.05)
    server = Server()
    server.fault = closes
    target, _ = upstream(server)
    with pytest.raises(UnansweredError):
        await reported(target)
    server.fault = None
    await asyncio.sleep(0.06)
    assert await reported(target) == b"fine"


async def test_one_that_has_answered_is_held_to_it() -> None:
    server = Server()
    target, member = upstream(server)
    assert await reported(target) == b"fine"
    for fault in (closes, hangs):
        server.fault = fault
        with pytest.raises(InferenceError) as caught:
            await reported(target)
        assert not isinstance(caught.value, UnansweredError)
    assert member.suspected.is_set()


@pytest.mark.parametrize("fault", [closes, speaks_otherwise])
async def test_questions_alone_never_leave_a_server_out(fault: Callable[[], InferenceError]) -> None:
    server = Server()
    target, member = upstream(server)
    await reported(target)
    server.fault = fault
    for _ in range(10):
        with pytest.raises(InferenceError):
            await reported(target)
    assert (member.failures, member.open) == (0, False)


async def test_what_speaks_otherwise_is_not_silent() -> None:
    server = Server()
    server.fault = speaks_otherwise
    target, _ = upstream(server)
    with pytest.raises(ConnectionFailedError, match="does not speak that"):
        await reported(target)


async def test_an_unreachable_server_is_ejected_and_queried_when_it_is_back() -> None:
    server = Server()
    server.fault = closes
    target, member = upstream(server)
    with pytest.raises(UnansweredError):
        await reported(target)
    server.down = "refused"
    with pytest.raises(ConnectionFailedError, match="10.0.0.1:1 cannot be reached: refused"):
        await reported(target)
    assert member.open and not member.mute
    server.down, server.fault = "", None
    assert await reported(target) == b"fine"
    assert not member.open


async def test_one_that_answers_requests_alone_may_be_another_server() -> None:
    server = Server()
    target, _ = upstream(server)
    assert await reported(target) == b"fine"
    server.fault = closes
    with pytest.raises(ConnectionFailedError):
        await reported(target)
    assert await infer(target) == b"inferred"
    with pytest.raises(UnansweredError):
        await reported(target)


# --- probes


async def probed(check: Callable[[Server, Upstream, Member], Awaitable[None]]) -> None:
    server = Server()
    server.fault = closes
    target, member = upstream(server, Probes(0.03, 5.0))
    try:
        assert await infer(target) == b"inferred"
        await until(lambda: server.connected >= 2)
        await check(server, target, member)
    finally:
        await target.close()


async def test_probes_connect_to_a_silent_server() -> None:
    async def check(server: Server, target: Upstream, member: Member) -> None:
        assert server.asked == ["infer", "ready"]
        assert (member.failures, member.open, member.ready) == (0, False, True)
        server.down = "refused"
        await until(lambda: member.open)
        server.down = ""
        await until(lambda: not member.open)

    await probed(check)


async def test_a_connection_does_not_mend_what_requests_broke() -> None:
    async def check(server: Server, target: Upstream, member: Member) -> None:
        server.broken = True
        for _ in range(3):
            with pytest.raises(ConnectionFailedError):
                await infer(target)
        assert member.open
        asked = len(server.asked)
        await until(lambda: len(server.asked) >= asked + 3)
        assert member.open
        server.broken = False
        assert await infer(target) == b"inferred"
        assert not member.open

    await probed(check)


async def test_a_silent_ejected_server_is_queried_with_every_probe() -> None:
    async def check(server: Server, target: Upstream, member: Member) -> None:
        server.broken = True
        for _ in range(3):
            with pytest.raises(ConnectionFailedError):
                await infer(target)
        server.fault = None
        await until(lambda: not member.open)

    await probed(check)
