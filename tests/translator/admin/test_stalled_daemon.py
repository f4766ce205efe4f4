"""The admin address answers while the event loop of the daemon is blocked, and reports for how long."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http.client import HTTPConnection

import pytest
from prometheus_client.parser import text_string_to_metric_families

from interlingua.protocols.transport.address import Address
from interlingua.runtime.repository.files import Loaded
from interlingua.translator.admin import daemon_loop
from interlingua.translator.admin.daemon_loop import DaemonLoop
from interlingua.translator.admin.listener import AdminListener
from interlingua.translator.assembly import assemble
from tests.protocols.transport.peers import LOOPBACK
from tests.translator.admin.test_listener import config
from tests.waiting import eventually, until

STALLED_AFTER_SECS = 0.5
INTERVAL_SECS = 0.02

Answer = tuple[int, str]
Holds = Callable[[], object]


def sleep(holds: Holds) -> None:
    eventually(holds)


def spin(holds: Holds) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline


BLOCKS = pytest.mark.parametrize("block", [sleep, spin])


class Poller:
    """Gets ``path`` again and again in a thread of its own, over a new connection each time."""

    def __init__(self, address: Address, path: str) -> None:
        self.answers: list[Answer] = []
        self._place = address.host, address.port
        self._path = path
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    async def more(self) -> None:
        """Wait for an answer to a request that is sent from now on."""
        count = len(self.answers) + 2
        await until(lambda: len(self.answers) >= count, pace_secs=INTERVAL_SECS)

    async def stop(self) -> list[Answer]:
        self._stopped.set()
        await asyncio.to_thread(self._thread.join)
        return self.answers

    def _run(self) -> None:
        while not self._stopped.wait(INTERVAL_SECS):
            connection = HTTPConnection(*self._place, timeout=30)
            connection.request("GET", self._path)
            reply = connection.getresponse()
            self.answers.append((reply.status, reply.read().decode()))
            connection.close()


@asynccontextmanager
async def listening() -> AsyncIterator[Address]:
    """The bound address of a listener that shows the site of a daemon without models."""
    assembly = assemble(config(), Loaded())
    async with AdminListener(LOOPBACK, STALLED_AFTER_SECS) as admin:
        admin.show(assembly.site())
        assert admin.address is not None
        yield admin.address
    await assembly.close()


@BLOCKS
async def test_liveness_reports_the_stall_and_then_fails(block: Callable[[Holds], None]) -> None:
    async with listening() as address:
        poller = Poller(address, "/health/live")
        await poller.more()
        # several are answered while the loop is blocked: each reports more than the one before
        block(lambda: len({body for status, body in list(poller.answers) if status == 503}) > 2)
        await poller.more()
        answers = await poller.stop()
    live = [(status, json.loads(body)) for status, body in answers]
    assert [status == 200 for status, _ in live] == [body["live"] for _, body in live]
    assert {status for status, _ in live} == {200, 503}
    failed = [body["stalled_secs"] for status, body in live if status == 503]
    assert failed == sorted(failed)
    assert min(failed) >= STALLED_AFTER_SECS
    assert (live[0][0], live[-1][0]) == (200, 200)


@BLOCKS
async def test_other_pages_wait_for_a_bounded_time(
    block: Callable[[Holds], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_loop, "_PATIENCE_SECS", STALLED_AFTER_SECS)
    async with listening() as address:
        pollers = pages, scrapes = [Poller(address, path) for path in ("/models", "/metrics")]
        for poller in pollers:
            await poller.more()
        block(
            lambda: (
                any(status == 503 for status, _ in list(pages.answers))
                and any("interlingua_online" not in text for _, text in list(scrapes.answers))
            )
        )
        for poller in pollers:
            await poller.more()
        models, metrics = [await poller.stop() for poller in pollers]
    refused = [text for status, text in models if status != 200]
    assert {status for status, _ in models} == {200, 503}
    assert all(text.startswith("the event loop of the daemon has been stalled for ") for text in refused)
    assert (models[0], models[-1]) == ((200, "{}\n"), (200, "{}\n"))
    assert {status for status, _ in metrics} == {200}
    values = [value_of(text) for _, text in metrics]
    stalled = [value for value in values if "interlingua_online" not in value]
    assert stalled
    for value in stalled:
        assert value["interlingua_event_loop_stalled_seconds"] >= STALLED_AFTER_SECS
        assert value["process_resident_memory_bytes"] > 0
    assert values[-1]["interlingua_online"] == 1
    lag = "interlingua_event_loop_lag_seconds_"
    assert values[-1][f"{lag}count"] > values[-1][f"{lag}bucket0.5"] > 0


def value_of(text: str) -> dict[str, float]:
    """Metrics by name, buckets by name and bound."""
    return {
        sample.name + sample.labels.get("le", ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_a_slow_page_on_a_loop_that_runs_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_loop, "_PATIENCE_SECS", 0.05)

    async def slow() -> str:
        await asyncio.sleep(0.3)
        return "the answer"

    daemon = DaemonLoop()

    async def other_side() -> object:
        watching = asyncio.create_task(daemon.watch())
        try:
            return await daemon.call(slow)  # type: ignore[arg-type]
        finally:
            watching.cancel()

    assert await asyncio.to_thread(asyncio.run, other_side()) == "the answer"
