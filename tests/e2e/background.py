"""An event loop in a thread, for servers that live as long as a test module."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from aiohttp import web

T = TypeVar("T")


class Background:
    """Runs coroutines in its own loop while synchronous tests go on."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._loop = asyncio.SelectorEventLoop(self._selector)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._runners: list[web.AppRunner] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def serve(self, application: web.Application) -> str:
        """Serve on a free port of 127.0.0.1; the address."""
        return self.run(self._serve(application))

    async def _serve(self, application: web.Application) -> str:
        runner = web.AppRunner(application)
        await runner.setup()
        self._runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        return f"{host}:{port}"

    def close(self) -> None:
        """End all that runs. What stays open would fail whichever test collects it, so this one fails."""
        for runner in self._runners:
            self.run(runner.cleanup())
        open_after = self.run(self._ended())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        assert not open_after, open_after

    async def _ended(self) -> list[str]:
        """Cancel the tasks that are left; the transports that are open after that."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(3):  # a closed transport leaves in the next turn
            await asyncio.sleep(0)
        return [
            repr(transport)
            for _, _, _, handles in self._selector.get_map().values()
            for handle in handles
            if isinstance(
                transport := getattr(getattr(handle, "_callback", None), "__self__", None), asyncio.Transport
            )
        ]
