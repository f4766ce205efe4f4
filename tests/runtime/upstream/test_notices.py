"""One upstream in several processes, here several objects that exchange notices."""

from __future__ import annotations

import asyncio

import pytest

from interlingua.runtime.upstream import notices
from interlingua.runtime.upstream.notices import Notice
from interlingua.runtime.upstream.pool.homes import in_order
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import ModelStatus, Sequence
from interlingua.translator.workers.notice_log import NoticeLog
from tests.runtime.upstream.test_upstream_pool import Server, fails, infer, refuses, upstream


class Processes:
    """``upstreams`` with ``servers`` in common; ``log`` is that of their supervisor."""

    def __init__(self, count: int, *servers: Server) -> None:
        self.servers = servers
        self.log = NoticeLog()
        self.upstreams: list[Upstream] = []
        for _ in range(count):
            self.start()

    def start(self) -> Upstream:
        one = upstream(*self.servers)

        def send(notice: Notice) -> None:
            self.log.add(notice)
            for each in self.upstreams:
                if each is not one:
                    notices.take(each, notice)

        notices.share(one, send)
        for notice in self.log.all:
            notices.take(one, notice)
        self.upstreams.append(one)
        return one


async def test_a_server_that_one_ejects_is_ejected_in_all() -> None:
    dead, other = Server(refuses), Server()
    processes = Processes(3, dead, other)
    for each in processes.upstreams * 4:
        await infer(each)
    # the others have not tried it
    assert dead.refused == 1
    late = processes.start()
    await infer(late)
    assert dead.refused == 1
    assert [each.pool.members[0].open for each in processes.upstreams] == [True] * 4
    # counted once
    assert sum(each.pool.members[0].ejections for each in processes.upstreams) == 1
    dead.fault = None
    processes.upstreams[2].pool.members[0].answered()
    assert [each.pool.members[0].open for each in processes.upstreams] == [False] * 4
    processes.upstreams[1].pool.members[1].said(False)
    assert [each.pool.members[1].ready for each in processes.upstreams] == [False] * 4
    assert [notice.key for notice in processes.log.all] == ["10.0.0.0:1", "10.0.0.1:1"]


@pytest.mark.parametrize("ejected", [False, True])
async def test_a_sequence_stays_with_its_server_whichever_process_has_its_requests(ejected: bool) -> None:
    servers = Server(), Server(), Server()
    processes = Processes(3, *servers)
    if ejected:
        # it recovers after the start
        processes.upstreams[0].pool.members[0].failed("gone", unreachable=True)
    for number in range(30):
        identity = f"sequence {number}"
        await infer(processes.upstreams[number % 3], f"{number}", sequence=Sequence(identity, start=True))
    processes.upstreams[0].pool.members[0].answered()
    late = processes.start()
    for each in (*processes.upstreams[1:3], late):
        for number in range(30):
            await infer(each, f"{number}", sequence=Sequence(f"sequence {number}"))
    for number in range(30):
        await infer(late, f"{number}", sequence=Sequence(f"sequence {number}", end=True))
    for server in servers:
        for message in set(server.executed):
            assert server.executed.count(message) == 5, "all requests of a sequence"
    assert len({message for server in servers for message in server.executed}) == 30
    assert not [notice for notice in processes.log.all if notice.kind == "sequence"]


async def test_a_sequence_stays_when_servers_join() -> None:
    processes = Processes(2, Server(), Server())
    one, other = processes.upstreams
    identities = list(range(1, 40))
    for identity in identities:
        await infer(one, sequence=Sequence(identity, start=True))
    homes = {identity: in_order(identity, one.pool.members)[0].url for identity in identities}
    joined = [upstream(Server(), Server(), Server()).pool.members[2] for _ in processes.upstreams]
    for each, member in zip(processes.upstreams, joined, strict=True):
        each.pool._change([member], [])
    for identity in identities:
        for each in (one, other):
            assert (home := each.pool.homes.find(("m", identity), each.pool.members)) is not None
            assert home.url == homes[identity]
    # the start of another with the same id
    for identity in identities:
        await infer(other, sequence=Sequence(identity, start=True))
        preferred = in_order(identity, one.pool.members)[0]
        assert one.pool.homes.find(("m", identity), one.pool.members) is preferred


async def test_a_sequence_whose_server_is_gone_goes_nowhere_else() -> None:
    processes = Processes(2, Server(), Server())
    one, other = processes.upstreams
    await infer(one, sequence=Sequence(7, start=True))
    home = in_order(7, one.pool.members)[0].url
    for each in processes.upstreams:
        gone = [member for member in each.pool.members if member.url == home]
        each.pool._change([], gone)
    await fails(one, "the server of sequence '7' is gone", sequence=Sequence(7))
    await fails(other, "the server of sequence '7' is gone", sequence=Sequence(7))
    await asyncio.sleep(0)


async def test_an_unload_is_known_in_all() -> None:
    processes = Processes(2, Server())
    one, other = processes.upstreams
    known: list[str] = []
    other.unloaded.controlled.append(known.append)
    status = ModelStatus("m", b"config")
    one.unloaded.add("m", status)
    late = processes.start()
    assert other.unloaded.status("m") is late.unloaded.status("m") is status
    late.unloaded.loaded("m")
    assert not any("m" in each.unloaded for each in processes.upstreams)
    assert known == ["m", "m"]
    other.unloaded.add("m", status)
    one.unloaded.found("m")  # one process sees that the upstream has it again
    assert not any("m" in each.unloaded for each in processes.upstreams)
