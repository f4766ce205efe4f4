"""What a browser that watches gets, and that it holds nothing up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from interlingua.protocols.wire import HttpAnswer
from interlingua.translator.admin.handler import QueryError
from interlingua.translator.dashboard import events
from interlingua.translator.dashboard.board import Board
from interlingua.translator.dashboard.condition import condition
from interlingua.translator.dashboard.events import MAX_VIEWERS, Cursor, EventPage, Live
from interlingua.translator.dashboard.history import History, Selection
from interlingua.translator.dashboard.traffic import Traffic

MODEL = {"runs": "here", "state": "READY", "reason": "", "versions": []}


def reports(**more: Any) -> dict[str, Any]:
    ready = {"ready": True, "reasons": []}
    return {"ready": ready, "server": {}, "upstreams": {}, "models": {"a": MODEL, "b": MODEL}, **more}


class Watched:
    """A board whose reports and clock a test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reports = reports()
        self.looks = 0
        self.board = Board(self._reports, lambda: self.now)

    async def _reports(self) -> dict[str, Any]:
        self.looks += 1
        return self.reports

    async def changes(self, since: int) -> tuple[int, dict[str, Any]]:
        found = await self.board.changes(since)
        return found.number, orjson.loads(orjson.dumps(found.entries))


async def test_only_what_has_changed_is_sent() -> None:
    watched = Watched()
    number, first = await watched.changes(0)
    assert set(first) == {"ready", "server", "upstreams", "models/a", "models/b", "condition"}
    watched.reports = reports(models={"a": {**MODEL, "state": "LOADING"}})
    watched.now += 60
    later, found = await watched.changes(number)
    assert found == {"models/a": {**MODEL, "state": "LOADING"}, "models/b": None}
    watched.now += 60
    assert await watched.changes(later) == (later + 1, {})
    # another one has everything, and nothing that is gone
    _, everything = await watched.changes(0)
    assert set(everything) == {"ready", "server", "upstreams", "models/a", "condition"}


async def test_all_browsers_share_a_look() -> None:
    watched = Watched()
    await asyncio.gather(*(watched.changes(0) for _ in range(10)))
    assert watched.looks == 1


async def test_who_misses_removals_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlingua.translator.dashboard.board._MAX_REMOVED", 0)
    watched = Watched()
    number, _ = await watched.changes(0)
    watched.reports = reports(models={})
    watched.now += 60
    _, found = await watched.changes(number)
    assert "server" in found and "models/a" not in found


async def test_a_browser_that_misses_removals_drops_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlingua.translator.dashboard.board._MAX_REMOVED", 0)
    watched = Watched()
    looks = Live(live()._history, watched.board)
    _, cursor = await looks.look(Selection(600), Cursor())
    watched.reports = reports(server={"name": "new"})
    watched.now += 60
    found, cursor = await looks.look(Selection(600), cursor)
    assert dict(parsed(found))["entries"] == {"first": False, "entries": {"server": {"name": "new"}}}
    watched.reports = reports(models={})
    watched.now += 60
    found, _ = await looks.look(Selection(600), cursor)
    changes = dict(parsed(found))["entries"]
    assert changes["first"] is True
    assert set(changes["entries"]) == {"ready", "server", "upstreams", "condition"}


def test_the_condition_and_its_reasons() -> None:
    assert condition(reports()) == {"state": "ready", "reasons": []}
    server = {"url": "h:1", "state": "ejected", "last_failure": "refused"}
    found = condition(
        reports(
            upstreams={"far": {"servers": [server, {**server, "state": "in use"}]}},
            models={
                "a": {**MODEL, "state": "UNAVAILABLE", "reason": "no file"},
                "b": {**MODEL, "state": "UNAVAILABLE", "reason": "it is unloaded"},
            },
            processes={"front end 0": {"ready": False}},
        )
    )
    assert found == {
        "state": "degraded",
        "reasons": [
            "upstream far: server h:1 is ejected: refused",
            "model a is unavailable: no file",
            "process front end 0 is not ready",
        ],
    }
    not_ready = reports(ready={"ready": False, "reasons": ["draining"]})
    assert condition(not_ready) == {"state": "not ready", "reasons": ["draining"]}


# --- the stream


def parsed(text: bytes) -> list[tuple[str, Any]]:
    found = []
    for block in text.decode().split("\n\n"):
        if block.startswith("event: "):
            name, data = block.split("\n", 1)
            found.append((name.removeprefix("event: "), orjson.loads(data.removeprefix("data: "))))
    return found


def live() -> Live:
    async def collect() -> Traffic:
        return Traffic()

    return Live(History(collect), Watched().board)


def body(answer: HttpAnswer) -> AsyncIterator[Any]:
    assert isinstance(answer.parts, AsyncIterator)
    return answer.parts


async def test_everything_first_then_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_EVENT_SECS", 0.01)
    page = EventPage(live().look)
    answer = await page.write("range=10m")
    assert dict(answer.headers)["content-type"] == "text/event-stream"
    assert dict(answer.headers)["cache-control"] == "no-store"
    stream = body(answer)
    first = parsed(await anext(stream))
    assert [name for name, _ in first] == ["entries", "ways"]
    assert first[0][1]["first"] is True
    # nothing is new: a comment keeps the connection in use
    assert await anext(stream) == b": heartbeat\n\n"
    assert page.viewers.count == 1
    page.viewers.close()
    assert [each async for each in stream] == []
    assert page.viewers.count == 0


async def test_the_number_of_browsers_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_EVENT_SECS", 60)
    page = EventPage(live().look)
    streams = [body(await page.write("")) for _ in range(MAX_VIEWERS)]
    for stream in streams:
        await anext(stream)
    refused = await page.write("")
    assert (refused.status, dict(refused.headers)["retry-after"]) == (503, "10")
    await streams[0].aclose()  # type: ignore[attr-defined]
    assert (await page.write("")).status == 200
    for stream in streams[1:]:
        await stream.aclose()  # type: ignore[attr-defined]
    assert page.viewers.count == 0


async def test_a_stalled_daemon_is_an_event_and_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_EVENT_SECS", 0.01)

    async def look(selection: Selection, cursor: Cursor) -> tuple[bytes, Cursor]:
        raise ConnectionError("stalled for 3.0 seconds")

    stream = body(await EventPage(look).write(""))
    for _ in range(2):
        assert parsed(await anext(stream)) == [("stalled", {"reason": "stalled for 3.0 seconds"})]


async def test_an_unknown_range_is_refused() -> None:
    with pytest.raises(QueryError):
        await EventPage(live().look).write("range=year")
