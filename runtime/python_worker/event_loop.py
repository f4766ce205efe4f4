"""The event loop of a model whose methods are coroutines.

As in Triton's Python backend, each model has one loop, from its first coroutine to its end: tasks that
``execute`` starts with ``asyncio.create_task`` continue after it has returned. ``asyncio`` is imported with
the first coroutine: it takes a sixth of the start of a worker, and most models do not use it.
"""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

_CLOSE_SECS = 3.0
"""How long cancelled tasks may continue; a model has ten seconds in total to end."""


class EventLoop:
    """A loop in its own thread, from the first coroutine until :meth:`close`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closing = False
        # a loop has only weak references to its tasks
        self._started: set[Future[None]] = set()

    @property
    def is_current(self) -> bool:
        """Whether the calling thread is the loop's: waiting there would stop every coroutine."""
        return self._thread is threading.current_thread()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """The result of ``coroutine``. Raises its error. Not for the loop's own thread."""
        return self._submitted(coroutine).result()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run ``coroutine`` in the background; it handles its own errors."""
        future = self._submitted(coroutine)
        self._started.add(future)
        future.add_done_callback(self._started.discard)

    def close(self) -> None:
        """Cancel every task, give it some time to end, and stop the loop."""
        if self._loop is None or self._thread is None:
            return
        try:
            self._submitted(self._cancel_all()).result(2 * _CLOSE_SECS)
        except Exception:
            # the end must come whatever a task holds up
            traceback.print_exc()
        self._closing = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_SECS)

    def _submitted(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            # as in Triton, for the methods of the model that are no coroutines
            asyncio.set_event_loop(self._loop)
            self._thread = threading.Thread(
                target=self._run, args=(self._loop,), name="event loop", daemon=True
            )
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._closing:
            # sys.exit in a task leaves run_forever, and must not stop the others
            with contextlib.suppress(SystemExit):
                loop.run_forever()

    async def _cancel_all(self) -> None:
        import asyncio

        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_SECS)
        await asyncio.get_running_loop().shutdown_asyncgens()
