"""A file of servers, and the servers of a pool as the file changes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from interlingua.protocols.wire import BrpcAnswer, BrpcRequest
from interlingua.runtime.upstream.members_file import MAX_BYTES, ListedMember, MembersFile, read_members
from interlingua.runtime.upstream.pool import Discovery, HostName, Listing, Member, Pool
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import ErrorCode, InferenceError, InferRequest, Operation, Sequence
from tests.runtime.upstream.test_upstream_pool import CALLS
from tests.waiting import until

FORMS = {
    "a list": "- a:1\n- {url: 'b:1', weight: 2.5, zone: west}\n",
    "a mapping": "members:\n  - url: a:1\n  - url: b:1\n    weight: 2.5\n    zone: west\n",
    "json": '{"members": ["a:1", {"url": "b:1", "weight": 2.5, "zone": "west"}]}',
    "json with tabs": '[\n\t"a:1",\n\t{"url": "b:1", "weight": 2.5, "zone": "west"}\n]',
}

BAD = {
    "": r"is empty: write \[\] for no servers",
    "{": "is not valid YAML: .*line",
    "\xff": None,
    9999 * "[": "is not valid YAML",
    "!!int ''": "is not valid YAML",
    "[2001-99-99]": "is not valid YAML",
    "3": "is not a list of servers, nor a mapping with a list under 'members'",
    "members:": "is not a list of servers",
    "servers: []": r"servers: is unknown; the keys are members",
    "[3]": r"\[0\]: must be a URL or a mapping of url, weight and zone",
    "members: [{url: 'a:1', wieght: 3}]": r"members\[0\]\.wieght: is unknown; the keys are url, weight, zone",
    "[{weight: 3}]": r"\[0\]\.url: must be text",
    "['a:1', 'http://b:1']": r"\[1\]\.url: 'http://b:1' has an unknown scheme",
    "['file:other.yaml']": r"\[0\]\.url: .* is not a URL",
    "[{url: 'a:1', weight: 0}]": r"\[0\]\.weight: must be a number above 0, at most 1000000",
    "[{url: 'a:1', weight: .nan}]": r"\[0\]\.weight: must be a number",
    "[{url: 'a:1', weight: true}]": r"\[0\]\.weight: must be a number",
    "[{url: 'a:1', zone: 3}]": r"\[0\]\.zone: must be text",
    "['a:1', {url: 'a:1'}]": "URL 'a:1' is repeated",
    "# " + MAX_BYTES * "x": f"has more than {MAX_BYTES} bytes",
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_the_forms_of_a_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "members"
    path.write_text(text)
    assert read_members(path, "grpc") == (ListedMember("a:1"), ListedMember("b:1", 2.5, "west"))


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:30])
def test_a_fault_names_its_key(text: str, tmp_path: Path) -> None:
    path = tmp_path / "members"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=BAD[text] or "is not UTF-8"):
        read_members(path, "grpc")


def test_the_file_is_read_when_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "members.yaml"
    path.write_text("['a:1']")
    file = MembersFile(path, "grpc")
    first = (ListedMember("a:1"),)
    assert file.members == first and not file.poll()
    # same size, and perhaps the same time
    path.write_text("['b:1']")
    assert file.poll() and file.members == (ListedMember("b:1"),)
    # another file under the name
    (tmp_path / "new").write_text("['a:1']")
    os.replace(tmp_path / "new", path)
    assert file.poll() and file.members == first
    faults: list[Callable[[], object]] = [
        lambda: path.write_text(""),
        lambda: path.write_text("['a:1', "),
        lambda: path.write_bytes(b"\xff\xfe\x00"),
        path.unlink,
        path.mkdir,
    ]
    for spoil in faults:
        caplog.clear()
        spoil()
        for _ in range(3):
            assert not file.poll() and file.members == first
        logged = [record.message for record in caplog.records if record.levelno == logging.WARNING]
        assert logged == ["members file unreadable, last members kept"] and file.fault
    path.rmdir()
    path.write_text("['a:1', 'c:1']")
    assert file.poll() and len(file.members) == 2 and not file.fault


def test_an_old_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "members.yaml"
    path.write_text("['a:1']")
    os.utime(path, (1e9, 1e9))
    file = MembersFile(path, "grpc")
    monkeypatch.setattr(Path, "open", None)
    assert not file.poll()


# --- the servers of a pool


class Server:
    """A client of a server that counts its requests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.executed = 0
        self.closed = False
        self.hold: asyncio.Event | None = None

    async def send(self, request: BrpcRequest) -> BrpcAnswer:
        assert not self.closed
        self.executed += 1
        if self.hold is not None:
            await self.hold.wait()
        await asyncio.sleep(0)
        assert not self.closed
        return BrpcAnswer(self.url.encode())

    async def close(self) -> None:
        self.closed = True


class World:
    """An upstream, its file, and the servers that it has connected to."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.write(text)
        self.made: list[Server] = []
        self.addresses: dict[str, tuple[str, ...]] = {}
        listing = Listing(MembersFile(path, "brpc"), self.make)
        self.pool = Pool(listing.members(), None, Discovery((), self.resolve, 0.01, listing))
        self.upstream = Upstream("there", CALLS, self.pool, 5.0)

    def write(self, text: str) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(text)
        os.replace(new, self.path)

    def make(self, url: str) -> HostName | Member:
        def connect(at: str = "") -> Member:
            server = Server(f"{url} {at}".strip())
            self.made.append(server)
            return Member(server, server.url)

        return HostName.of(url[:-2], 1, connect) if url.startswith("name") else connect()

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:
        return self.addresses[host]

    async def ask(self, sequence: Sequence | None = None) -> str:
        answer: bytes = await self.upstream.call(Operation.INFER, InferRequest("m", (), sequence=sequence))
        return answer.decode()

    async def until(self, *urls: str) -> None:
        await until(lambda: sorted(member.url for member in self.pool.members) == sorted(urls))


@asynccontextmanager
async def world(folder: Path, text: str) -> AsyncIterator[World]:
    made = World(folder / "members.yaml", text)
    try:
        yield made
    finally:
        await made.upstream.close()
        assert all(server.closed for server in made.made)


async def test_servers_come_and_go_with_the_file(tmp_path: Path) -> None:
    async with world(tmp_path, "['a:1', 'b:1']") as made:
        assert {await made.ask() for _ in range(4)} == {"a:1", "b:1"}
        going = made.made[0]
        going.hold = asyncio.Event()
        waiting = [asyncio.ensure_future(made.ask()) for _ in range(2)]
        made.write("['b:1', 'c:1']")
        await made.until("b:1", "c:1")
        assert {await made.ask() for _ in range(4)} == {"b:1", "c:1"}
        assert not going.closed
        going.hold.set()
        assert set(await asyncio.gather(*waiting)) == {"a:1", "b:1"}


async def test_weights_and_zones_change_without_another_connection(tmp_path: Path) -> None:
    async with world(tmp_path, "['a:1', 'b:1']") as made:
        await made.ask()
        before = list(made.pool.members)
        made.write("[{url: 'a:1', weight: 3, zone: west}, 'b:1']")
        await until(lambda: before[0].weight == 3)
        assert made.pool.members == before and before[0].zone == "west"
        for server in made.made:
            server.executed = 0
        for _ in range(40):
            await made.ask()
        assert [server.executed for server in made.made] == [30, 10]


async def test_a_name_in_the_file_is_followed(tmp_path: Path) -> None:
    async with world(tmp_path, "[{url: 'name:1', weight: 2, zone: west}, 'a:1']") as made:
        made.addresses["name"] = ("10.0.0.1", "10.0.0.2")
        await made.ask()
        await made.until("name:1 10.0.0.1", "name:1 10.0.0.2", "a:1")
        made.addresses["name"] = ("10.0.0.2", "10.0.0.3")
        await made.until("name:1 10.0.0.2", "name:1 10.0.0.3", "a:1")
        assert sorted((member.weight, member.zone) for member in made.pool.members) == [
            (1, ""),
            (2, "west"),
            (2, "west"),
        ]
        made.write("['a:1']")
        await made.until("a:1")


async def test_a_file_without_servers(tmp_path: Path) -> None:
    async with world(tmp_path, "['a:1']") as made:
        await made.ask(Sequence(3, start=True))
        made.write("members: []")
        await made.until()
        words = f"the members file {made.path} lists no server"
        for sequence in (None, Sequence(3), Sequence(4, start=True)):
            with pytest.raises(InferenceError) as caught:
                await made.ask(sequence)
            assert (caught.value.code, caught.value.message) == (ErrorCode.UNAVAILABLE, words)
        for operation in (Operation.MODEL_LOAD, Operation.READY):
            with pytest.raises(InferenceError, match="lists no server"):
                await made.upstream.call(operation)
        made.write("['b:1']")
        await made.until("b:1")
        assert await made.ask() == "b:1"


async def test_a_process_that_starts_with_an_unreadable_file(tmp_path: Path) -> None:
    async with world(tmp_path, "['a:1") as made:
        with pytest.raises(InferenceError, match=r"members\.yaml is unreadable: is not valid YAML"):
            await made.ask()
        made.write("['a:1']")
        await made.until("a:1")


async def test_no_request_is_lost_by_changes(tmp_path: Path) -> None:
    async with world(tmp_path, "['0:1', '1:1']") as made:
        stop = asyncio.Event()
        answered = 0

        async def load() -> None:
            nonlocal answered
            while not stop.is_set():
                await made.ask()
                answered += 1

        loads = [asyncio.ensure_future(load()) for _ in range(8)]
        for number in range(50):
            urls = [f"{number % 5}:1", f"{(number + 1 + number % 3) % 5}:1"]
            made.write(f"[{{url: '{urls[0]}', weight: {1 + number % 2}}}, '{urls[1]}']")
            await made.until(*urls)
        stop.set()
        await asyncio.gather(*loads)
        assert sum(server.executed for server in made.made) == answered > 50
