"""Which server of a pool gets a request, and when none does."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.wire import BrpcAnswer, BrpcRequest, ConnectionFailedError
from interlingua.runtime.upstream.pool import Discovery, Gate, HostName, Member, Pool, Probes
from interlingua.runtime.upstream.pool import member as members_module
from interlingua.runtime.upstream.pool import pool as pool_module
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    Operation,
    Readiness,
    Sequence,
)
from tests.waiting import until


def encoded(argument: Any, signature: Any) -> tuple[BrpcRequest, None]:
    return BrpcRequest("s", "infer", str(getattr(argument, "id", "")).encode()), None


def reads(form: None, answer: BrpcAnswer) -> Any:
    if answer.message == b"junk":
        raise InferenceError(ErrorCode.BAD_UPSTREAM, "that makes no sense")
    if answer.code:
        raise InferenceError(ErrorCode.UNAVAILABLE, "not now")
    return bytes(answer.message)


CALLS = {
    Operation.INFER: UpstreamCall(encoded, reads),
    Operation.MODEL_METADATA: UpstreamCall(encoded, reads),
    Operation.MODEL_LOAD: UpstreamCall(encoded, reads),
    Operation.READY: UpstreamCall(
        lambda argument, signature: (BrpcRequest("s", "ready", b""), None),
        lambda form, answer: Readiness(answer.message == b"yes"),
    ),
}
STREAMING = {
    **CALLS,
    Operation.INFER_STREAM: UpstreamCall(encoded, lambda form, answer: (bytes(answer.message),)),
}


def refuses() -> ConnectionFailedError:
    return ConnectionFailedError(ErrorCode.UNAVAILABLE, "cannot be reached", sent=False)


def breaks() -> ConnectionFailedError:
    return ConnectionFailedError(ErrorCode.UNAVAILABLE, "broke off", sent=True)


@dataclass
class Server:
    """A client of a server that does as the test says; ``executed`` are the requests that arrived there."""

    fault: Callable[[], InferenceError] | None = None
    ready: bytes = b"yes"
    answer: bytes = b"fine"
    code: int = 0
    executed: list[bytes] = field(default_factory=list)
    refused: int = 0
    probed: int = 0
    hold: asyncio.Event | None = None
    closed: bool = False

    async def send(self, request: BrpcRequest) -> BrpcAnswer:
        probing = request.method == "ready"
        self.probed += probing
        if self.fault is not None:
            fault = self.fault()
            if not probing:
                if getattr(fault, "sent", True):
                    self.executed.append(bytes(request.message))
                else:
                    self.refused += 1
            raise fault
        if probing:
            return BrpcAnswer(self.ready)
        self.executed.append(bytes(request.message))
        if self.hold is not None:
            await self.hold.wait()
        return BrpcAnswer(self.answer, self.code)

    async def stream(self, request: BrpcRequest) -> AsyncIterator[BrpcAnswer]:
        yield await self.send(request)
        yield await self.send(request)

    async def close(self) -> None:
        self.closed = True


def upstream(*servers: Server, gate: Gate | None = None, probes: Probes | None = None) -> Upstream:
    pool = Pool([Member(server, f"10.0.0.{place}:1") for place, server in enumerate(servers)], probes)
    return Upstream("there", STREAMING, pool, 5.0, gate=gate)


async def infer(target: Upstream, identity: str = "", *, sequence: Sequence | None = None) -> Any:
    request = InferRequest("m", (), id=identity, sequence=sequence)
    return await target.call(Operation.INFER, request)


async def fails(target: Upstream, words: str, **options: Any) -> InferenceError:
    with pytest.raises(InferenceError, match=words) as caught:
        await infer(target, **options)
    assert caught.value.origin == "there"
    return caught.value


# --- the end


async def test_it_leaves_after_a_request_that_makes_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "QUIET_SECS", 0.1)
    server = Server(hold=asyncio.Event())
    target = upstream(server)

    async def infer_after_metadata() -> Any:
        await target.call(Operation.MODEL_METADATA)
        assert not server.closed
        return await infer(target)

    waiting = asyncio.create_task(infer_after_metadata())
    await until(lambda: len(server.executed) == 1)
    leaving = asyncio.create_task(target.leave(asyncio.get_running_loop().create_future()))
    await asyncio.sleep(0)
    assert server.hold is not None
    server.hold.set()
    server.hold = asyncio.Event()
    await until(lambda: len(server.executed) == 2)
    await asyncio.sleep(0.2)
    assert not server.closed
    server.hold.set()
    assert await waiting == b"fine"
    await leaving
    assert server.closed


async def test_it_leaves_at_once_if_the_server_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(hold=asyncio.Event())
    monkeypatch.setattr(pool_module, "QUIET_SECS", 60)
    target, hurry = upstream(server), asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(infer(target))
    await until(lambda: len(server.executed) == 1)
    leaving = asyncio.create_task(target.leave(hurry))
    hurry.set_result(None)
    await asyncio.sleep(0.01)
    assert not server.closed
    assert server.hold is not None
    server.hold.set()
    assert await waiting == b"fine"
    async with asyncio.timeout(20):
        await leaving
    assert server.closed


# --- balance


async def test_requests_that_share_pins_go_to_one_server() -> None:
    one, other = Server(), Server()
    target = upstream(one, other)
    streams = [Context(pins={}), Context(pins={})]
    for _ in range(6):
        for number, context in enumerate(streams):
            await target.call(Operation.INFER, InferRequest("m", (), id=str(number), context=context))
    assert sorted((one.executed, other.executed)) == [[b"0"] * 6, [b"1"] * 6]


@pytest.mark.parametrize("leaves", ["refuses", "drains"])
async def test_pinned_requests_move_together(leaves: str) -> None:
    servers = [Server(), Server(), Server()]
    target = upstream(*servers)
    context = Context(pins={})

    async def six() -> list[int]:
        for server in servers:
            server.executed.clear()
        for _ in range(6):
            await target.call(Operation.INFER, InferRequest("m", (), context=context))
        return [len(server.executed) for server in servers]

    first = (await six()).index(6)
    if leaves == "refuses":
        servers[first].fault = refuses
    else:
        target.pool.members[first].ready = False
    assert sorted(await six()) == [0, 0, 6]
    assert servers[first].executed == []


async def test_the_least_busy_is_used() -> None:
    busy, free = Server(hold=asyncio.Event()), Server()
    target = upstream(busy, free)
    waiting = [asyncio.ensure_future(infer(target)) for _ in range(2)]
    await asyncio.sleep(0)
    assert (len(busy.executed), len(free.executed)) == (1, 1)
    for _ in range(10):
        await infer(target)
    assert (len(busy.executed), len(free.executed)) == (1, 11)
    assert busy.hold is not None
    busy.hold.set()
    await asyncio.gather(*waiting)


async def test_who_goes_away_is_no_load_and_no_failure() -> None:
    slow = Server(hold=asyncio.Event())
    target = upstream(slow, other := Server())
    for _ in range(10):
        waiting = asyncio.ensure_future(infer(target))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait((waiting,))
    assert len(slow.executed) == 5 and len(other.executed) == 5


# --- another server


async def test_what_cannot_be_sent_goes_to_another() -> None:
    down, up = Server(refuses), Server()
    target = upstream(down, up)
    for number in range(10):
        assert await infer(target, str(number)) == b"fine"
    assert up.executed == [b"%d" % number for number in range(10)]
    assert down.refused == 1  # from then on it is left out


@pytest.mark.parametrize("others", [0, 1, 3])
async def test_each_server_is_tried_once(others: int) -> None:
    servers = [Server(refuses) for _ in range(1 + others)]
    await fails(upstream(*servers), "cannot be reached")
    assert [server.refused for server in servers] == [1] * (1 + others)


async def test_what_may_have_run_is_sent_to_no_other_server() -> None:
    servers = [Server(breaks) for _ in range(3)]
    target = upstream(*servers)
    for number in range(30):
        await fails(target, "broke off", identity=str(number))
    executed = [message for server in servers for message in server.executed]
    assert sorted(executed) == sorted(b"%d" % number for number in range(30))


async def test_what_only_reads_is_sent_to_another() -> None:
    broken, well = Server(breaks), Server()
    target = upstream(broken, well)
    for _ in range(4):
        assert await target.call(Operation.MODEL_METADATA) == b"fine"
    assert len(well.executed) == 4


async def test_a_stream_goes_to_another_before_it_has_begun() -> None:
    down, up = Server(refuses), Server()
    target = upstream(down, up)
    for _ in range(4):
        request = InferRequest("m", ())
        assert [each async for each in target.stream(request, None, Context())] == [b"fine", b"fine"]
    assert (down.refused, len(up.executed)) == (1, 8)


async def test_a_stream_that_has_begun_goes_nowhere_else() -> None:
    class Breaking(Server):
        async def stream(self, request: BrpcRequest) -> AsyncIterator[BrpcAnswer]:
            yield await self.send(request)
            raise breaks()

    servers = [Breaking(), Breaking()]
    answers = upstream(*servers).stream(InferRequest("m", ()), None, Context())
    assert await anext(answers) == b"fine"
    with pytest.raises(InferenceError, match="broke off"):
        await anext(answers)
    assert sum(len(server.executed) for server in servers) == 1


async def test_a_model_is_loaded_everywhere() -> None:
    servers = [Server(), Server(), Server()]
    target = upstream(*servers)
    await target.call(Operation.MODEL_LOAD)
    assert [len(server.executed) for server in servers] == [1, 1, 1]
    servers[0].fault = refuses
    with pytest.raises(InferenceError) as caught:
        await target.call(Operation.MODEL_LOAD)
    assert caught.value.message == "upstream 'there': cannot be reached"
    assert [len(server.executed) for server in servers] == [1, 2, 2]


# --- who is left out


async def test_a_server_that_fails_again_and_again_is_ejected() -> None:
    broken, well = Server(breaks), Server()
    target = upstream(broken, well)
    failed = 0
    for _ in range(20):
        try:
            await infer(target)
        except InferenceError:
            failed += 1
    assert failed == 3 and len(well.executed) == 17
    found = [(each.requests, each.failures, each.ejections) for each in target.pool.members]
    assert found == [(3, 3, 1), (17, 0, 0)]


async def test_failures_in_between_do_not_count() -> None:
    sometimes, well = Server(), Server()
    target = upstream(sometimes, well)
    for number in range(40):
        sometimes.fault = breaks if number % 4 == 0 else None
        try:
            await infer(target)
        except InferenceError:
            continue
    assert len(sometimes.executed) == 20


async def test_the_last_server_is_not_ejected_for_its_answers() -> None:
    server, gone = Server(answer=b"junk", hold=asyncio.Event()), Server(refuses)
    assert server.hold is not None
    server.hold.set()
    target = upstream(server, gone)
    for _ in range(10):
        await fails(target, "makes no sense")
    said = await asyncio.gather(*(infer(target) for _ in range(20)), return_exceptions=True)
    assert all("makes no sense" in str(error) for error in said)
    assert len(server.executed) == 30


async def test_a_server_with_invalid_answers_is_ejected() -> None:
    junk, well = Server(answer=b"junk"), Server()
    target = upstream(junk, well)
    said: list[Any] = []
    for _ in range(20):
        said += await asyncio.gather(infer(target), return_exceptions=True)
    assert (len(junk.executed), said.count(b"fine")) == (3, 17)


async def test_an_answer_that_says_no_is_an_answer() -> None:
    unwilling, well = Server(code=14), Server()
    target = upstream(unwilling, well)
    said = await asyncio.gather(*(infer(target) for _ in range(20)), return_exceptions=True)
    assert sum(isinstance(each, InferenceError) and each.message == "not now" for each in said) == 10
    assert len(unwilling.executed) == 10


async def test_where_all_fail_one_request_tries() -> None:
    server = Server(breaks)
    target = upstream(server)
    for _ in range(3):
        await fails(target, "broke off")
    server.fault, server.hold = None, asyncio.Event()
    trial = asyncio.ensure_future(infer(target))
    await asyncio.sleep(0)
    for _ in range(5):
        error = await fails(target, "all servers fail and are being tried; .*broke off")
        assert (error.code, error.retryable) == (ErrorCode.UNAVAILABLE, True)
    assert len(server.executed) == 4
    server.hold.set()
    assert await trial == b"fine"
    assert await asyncio.gather(*(infer(target) for _ in range(50))) == [b"fine"] * 50


async def test_a_stream_that_has_begun_shows_that_the_server_is_back() -> None:
    server = Server(refuses)
    target = upstream(server)
    await fails(target, "cannot be reached")
    server.fault = None
    answers = target.stream(InferRequest("m", ()), None, Context())
    assert await anext(answers) == b"fine"
    assert await infer(target) == b"fine"
    await answers.aclose()
    assert await infer(target) == b"fine"


async def test_a_trial_that_is_given_up_leaves_room_for_another() -> None:
    server = Server(refuses)
    target = upstream(server)
    await fails(target, "cannot be reached")
    server.fault, server.hold = None, asyncio.Event()
    trial = asyncio.ensure_future(infer(target))
    await asyncio.sleep(0)
    trial.cancel()
    await asyncio.wait((trial,))
    server.hold.set()
    assert await infer(target) == b"fine"


async def test_without_probes_time_brings_a_server_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members_module, "PEACE_SECS", 60)
    down, up = Server(refuses), Server()
    target = upstream(down, up)
    for _ in range(4):
        await infer(target)
    down.fault = None
    await infer(target)
    assert not down.executed
    monkeypatch.setattr(members_module, "PEACE_SECS", 0)
    for _ in range(4):
        await infer(target)
    assert down.executed


# --- probes


async def test_a_probe_brings_a_server_back() -> None:
    down, up = Server(refuses), Server()
    target = upstream(down, up, probes=Probes(0.4, 5.0))
    for _ in range(4):
        await infer(target)
    down.fault = None
    for _ in range(4):
        await infer(target)
    assert not down.executed
    await until(lambda: not target.pool.members[0].open)
    for _ in range(4):
        await infer(target)
    assert len(down.executed) == 2
    await target.close()
    assert down.closed and up.closed
    probed = down.probed
    await asyncio.sleep(0.5)
    assert down.probed == probed


async def test_a_server_that_is_not_ready_is_used_only_where_no_other_is() -> None:
    leaving, staying = Server(ready=b"no"), Server()
    target = upstream(leaving, staying, probes=Probes(0.05, 5.0))
    await infer(target)
    await until(lambda: leaving.probed > 0 and staying.probed > 0)
    leaving.executed.clear()
    for _ in range(6):
        await infer(target)
    assert not leaving.executed
    staying.ready = b"no"
    seen = staying.probed
    # the second has begun after the change, and a third after the answer to it
    await until(lambda: staying.probed > seen + 2)
    for _ in range(6):
        await infer(target)
    assert len(leaving.executed) == 3
    await target.close()


async def test_a_timeout_is_looked_into_at_once() -> None:
    def late() -> InferenceError:
        return InferenceError(ErrorCode.DEADLINE_EXCEEDED, "late")

    hung, well = Server(late), Server()
    target = upstream(hung, well, probes=Probes(1.0, 5.0))
    while not hung.executed:
        try:
            await infer(target)
        except InferenceError:
            continue
    assert await until(lambda: hung.probed > 0) < 0.6
    await target.close()


async def test_impatient_callers_eject_no_server() -> None:
    target = upstream(server := Server())
    for _ in range(10):
        server.fault = lambda: InferenceError(ErrorCode.DEADLINE_EXCEEDED, "late")
        await fails(target, "late")
    server.fault = None
    assert await asyncio.gather(*(infer(target) for _ in range(5))) == [b"fine"] * 5


async def test_a_server_that_does_not_answer_its_probes_is_ejected() -> None:
    hung, well = Server(lambda: InferenceError(ErrorCode.DEADLINE_EXCEEDED, "late")), Server()
    target = upstream(hung, well, probes=Probes(0.05, 5.0))
    await target.call(Operation.READY)
    await until(lambda: hung.probed >= 4)
    hung.executed.clear()
    for _ in range(6):
        await infer(target)
    assert not hung.executed
    await target.close()


# --- sequences


async def test_a_sequence_goes_nowhere_else() -> None:
    servers = [Server() for _ in range(3)]
    target = upstream(*servers)
    await infer(target, sequence=Sequence(7, start=True))
    (home,) = (server for server in servers if server.executed)
    home.fault = refuses
    error = await fails(target, "cannot be reached", sequence=Sequence(7))
    assert error.code is ErrorCode.UNAVAILABLE
    assert sum(len(server.executed) for server in servers) == 1
    home.fault = None
    await infer(target, sequence=Sequence(7, end=True))
    assert len(home.executed) == 2


async def test_a_sequence_that_starts_chooses_among_those_that_work_and_stays() -> None:
    servers = [Server() for _ in range(3)]
    target = upstream(*servers)
    await infer(target, sequence=Sequence("s", start=True, end=True))
    (usual,) = (server for server in servers if server.executed)
    usual.fault = refuses
    await infer(target, sequence=Sequence("s", start=True))
    (other,) = (server for server in servers if server.executed and server is not usual)
    usual.fault = None
    for _ in range(5):
        await infer(target, sequence=Sequence("s"))
    assert (len(usual.executed), len(other.executed)) == (1, 6)


async def test_several_daemons_agree_where_a_sequence_lives() -> None:
    for identity in range(20):
        servers = [Server() for _ in range(3)]
        for sequence in (Sequence(identity, start=True), Sequence(identity), Sequence(identity)):
            await infer(upstream(*servers), sequence=sequence)
        assert sorted(len(server.executed) for server in servers) == [0, 0, 3]


async def test_sequences_are_spread() -> None:
    servers = [Server() for _ in range(4)]
    target = upstream(*servers)
    for identity in range(400):
        await infer(target, sequence=Sequence(identity, start=True))
    assert all(60 < len(server.executed) < 140 for server in servers)


async def test_sequences_that_never_end_are_not_kept_for_ever() -> None:
    target = upstream(Server(), Server())
    for identity in range(70_000):
        target.pool.home(InferRequest("m", (), sequence=Sequence(identity, start=True)), ())
    assert len(target.pool.homes._known) == 65536


# --- limits


async def test_what_is_above_the_limit_waits_its_turn() -> None:
    server = Server(hold=asyncio.Event())
    target = upstream(server, gate=Gate(2, max_wait_secs=5))
    waiting = [asyncio.ensure_future(infer(target, str(number))) for number in range(6)]
    await asyncio.sleep(0.01)
    assert server.executed == [b"0", b"1"]
    assert server.hold is not None and target.gate is not None
    assert (target.gate.running, target.gate.waiting) == (2, 4)
    waiting[3].cancel()
    server.hold.set()
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert server.executed == [b"0", b"1", b"2", b"4", b"5"]
    assert [each for each in done if each == b"fine"] == [b"fine"] * 5
    assert (target.gate.running, target.gate.waiting) == (0, 0)
    assert await infer(target) == b"fine"


async def test_who_waits_too_long_is_refused() -> None:
    server = Server(hold=asyncio.Event())
    target = upstream(server, gate=Gate(1, max_wait_secs=0.05))
    first = asyncio.ensure_future(infer(target))
    await asyncio.sleep(0)
    error = await fails(target, "upstream 'there': as much is under way as max_concurrency 1 allows")
    assert (error.code, error.retryable) == (ErrorCode.OVERLOADED, True)
    context = Context(deadline=time.monotonic() + 0.01)
    with pytest.raises(InferenceError) as caught:
        await target.call(Operation.INFER, InferRequest("m", ()), context=context)
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
    # what is no inference does not wait
    asking = asyncio.ensure_future(target.call(Operation.READY))
    assert await asking == Readiness(True)
    assert server.hold is not None
    server.hold.set()
    await first
    assert await infer(target) == b"fine"


async def test_bytes_are_limited_too() -> None:
    server = Server(hold=asyncio.Event())
    target = upstream(server, gate=Gate(max_bytes=10, max_wait_secs=5))
    waiting = [asyncio.ensure_future(infer(target, "x" * size)) for size in (4, 4, 4, 1)]
    await asyncio.sleep(0.01)
    # nobody overtakes, however small
    assert [len(each) for each in server.executed] == [4, 4]
    assert server.hold is not None
    server.hold.set()
    await asyncio.gather(*waiting)
    assert await infer(target, "x" * 100) == b"fine"  # alone


# --- names


class NameServer:
    """A name server that resolves to ``addresses``, and the servers behind the addresses."""

    def __init__(self, *addresses: str) -> None:
        self.addresses: tuple[str, ...] | None = addresses
        self.made: list[tuple[str, Server]] = []

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:
        assert (host, port) == ("servers", 1)
        if self.addresses is None:
            raise OSError("no such host")
        return self.addresses

    def connect(self, address: str) -> Member:
        self.made.append((address, server := Server()))
        return Member(server, address or "servers:1")

    def upstream(self, probes: Probes | None = None) -> Upstream:
        name = HostName.of("servers", 1, self.connect)
        pool = Pool(list(name.known.values()), probes, Discovery([name], self.resolve, 0.02))
        return Upstream("there", STREAMING, pool, 5.0)

    def executed(self) -> dict[str, int]:
        return {address: len(server.executed) for address, server in self.made}


@pytest.mark.parametrize("addresses", [("10.0.0.1",), ("10.0.0.1", "fd00::1")])
async def test_a_name_with_one_address_of_each_kind_is_one_server(addresses: tuple[str, ...]) -> None:
    names = NameServer(*addresses)
    target = names.upstream()
    for _ in range(3):
        await infer(target)
        await asyncio.sleep(0.03)
    assert sum(names.executed().values()) == 3
    (first,) = (server for _, server in names.made if server.executed)
    # the address has changed: nobody would notice on a connection that is kept
    names.addresses = ("10.0.0.2",)
    await until(lambda: first.closed)
    await infer(target)
    assert names.executed()["10.0.0.2"] == 1
    await target.close()
    assert all(server.closed for _, server in names.made)


async def test_each_address_of_a_name_is_a_server() -> None:
    names = NameServer("10.0.0.1", "10.0.0.2", "fd00::1")
    target = names.upstream(Probes(0.02, 1.0))
    for _ in range(6):
        await infer(target)
    assert names.executed() == {"": 0, "10.0.0.1": 3, "10.0.0.2": 3}
    await until(lambda: all(server.probed for address, server in names.made if address))
    names.addresses = ("10.0.0.2", "10.0.0.3")
    await until(lambda: names.made[1][1].closed)
    for _ in range(6):
        await infer(target)
    assert names.executed() == {"": 0, "10.0.0.1": 3, "10.0.0.2": 6, "10.0.0.3": 3}
    await target.close()
    assert all(server.closed for _, server in names.made)


async def busy_server(names: NameServer, target: Upstream) -> tuple[Server, asyncio.Future[bytes]]:
    """The server at the first address, which holds a request, and that request."""
    await infer(target)
    server = names.made[1][1]
    server.hold = asyncio.Event()
    while not server.executed:
        waiting = asyncio.ensure_future(infer(target))
        await asyncio.sleep(0)
    return server, waiting


async def test_a_server_that_goes_finishes_what_it_has() -> None:
    names = NameServer("10.0.0.1", "10.0.0.2")
    target = names.upstream()
    going, waiting = await busy_server(names, target)
    names.addresses = ("10.0.0.2", "10.0.0.3")
    await until(lambda: len(names.made) == 4)
    await asyncio.sleep(0.05)
    assert not going.closed
    assert going.hold is not None
    going.hold.set()
    assert await waiting == b"fine"
    await until(lambda: going.closed)
    await target.close()


async def test_an_upstream_leaves_after_the_requests_of_a_server_that_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_module, "QUIET_SECS", 0.01)
    names = NameServer("10.0.0.1", "10.0.0.2")
    target = names.upstream()
    going, waiting = await busy_server(names, target)
    early = asyncio.create_task(target.leave(asyncio.get_running_loop().create_future()))
    names.addresses = ("10.0.0.2", "10.0.0.3")
    await until(lambda: len(names.made) == 4)
    late = asyncio.create_task(target.leave(asyncio.get_running_loop().create_future()))
    await asyncio.sleep(0.1)
    assert not (going.closed or early.done() or late.done())
    assert going.hold is not None
    going.hold.set()
    assert await waiting == b"fine"
    async with asyncio.timeout(30):
        await early
        await late
    assert going.closed


async def test_what_cannot_be_looked_up_stays_as_it_was() -> None:
    names = NameServer("10.0.0.1", "10.0.0.2")
    target = names.upstream()
    await target.call(Operation.READY)
    names.addresses = None
    await asyncio.sleep(0.05)
    for _ in range(6):
        await infer(target)
    assert names.executed() == {"": 0, "10.0.0.1": 3, "10.0.0.2": 3}
    await target.close()


async def test_addresses_come_and_go_under_load_without_a_lost_request() -> None:
    """As those of a headless service, 50 times."""
    names = NameServer("10.0.0.1")
    target = names.upstream()
    sent, stop = 0, False

    async def load() -> None:
        nonlocal sent
        while not stop:
            assert await infer(target) == b"fine"
            sent += 1
            await asyncio.sleep(0)

    loads = [asyncio.ensure_future(load()) for _ in range(4)]
    for number in range(50):
        made = len(names.made)
        names.addresses = tuple(f"10.0.{number}.{place}" for place in range(1 + number % 3))
        await until(lambda made=made: len(names.made) > made)
    stop = True
    await asyncio.gather(*loads)
    assert sum(names.executed().values()) == sent > 50
    await target.close()
    assert all(server.closed for _, server in names.made)


@pytest.mark.parametrize(
    ("failures", "confirmed"),
    [
        ({}, True),
        ({"a": socket.gaierror(socket.EAI_NONAME, "unknown")}, True),
        ({"a": socket.gaierror(socket.EAI_AGAIN, "no server")}, False),
        ({name: socket.gaierror(socket.EAI_NONAME, "unknown") for name in "ab"}, False),
    ],
)
async def test_a_list_is_confirmed_if_dns_has_answered(failures: dict[str, OSError], confirmed: bool) -> None:
    async def resolve(host: str, port: int) -> tuple[str, ...]:
        if host in failures:
            raise failures[host]
        return ("10.0.0.1",)

    rounds = 0

    async def counted(host: str, port: int) -> tuple[str, ...]:
        nonlocal rounds
        rounds += host == "b"
        return await resolve(host, port)

    names = [HostName.of(name, 1, lambda address: Member(Server(), address or "name")) for name in "ab"]
    discovery = Discovery(names, counted, 0.01)
    found: list[float] = []
    discovery.confirmed = found.append
    await discovery.follow(lambda come, go: None)
    await until(lambda: rounds > 3)
    await discovery.stop()
    assert bool(found) is confirmed and found == sorted(found)


async def test_a_name_that_was_never_found_is_resolved_by_each_connection() -> None:
    names = NameServer()
    names.addresses = None
    target = names.upstream()
    assert await asyncio.gather(*(infer(target) for _ in range(3))) == [b"fine"] * 3
    assert names.executed() == {"": 3}
    await target.close()


async def test_a_sequence_whose_server_is_gone_gets_an_error() -> None:
    names = NameServer("10.0.0.1", "10.0.0.2")
    target = names.upstream()
    for identity in range(20):
        await infer(target, sequence=Sequence(identity, start=True))
    before = names.executed()
    names.addresses = ("10.0.0.1",)
    await until(lambda: names.made[2][1].closed)
    found = [
        await asyncio.gather(infer(target, sequence=Sequence(identity)), return_exceptions=True)
        for identity in range(20)
    ]
    # those of the one that stays go on there
    assert sum(each == [b"fine"] for each in found) == before["10.0.0.1"]
    gone = [error for (error,) in found if isinstance(error, InferenceError)]
    assert len(gone) == before["10.0.0.2"] > 0
    assert all(error.code is ErrorCode.UNAVAILABLE and "is gone" in error.message for error in gone)
    for identity in range(20):
        await infer(target, sequence=Sequence(identity, start=True))
    await target.close()
