"""Reloads the file that the server was started with, one reload at a time."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.repository.background_tasks import BackgroundTasks
from interlingua.translator.config import Config, ConfigError, load
from interlingua.translator.config.loader import log_former_names
from interlingua.translator.dashboard import configuration
from interlingua.translator.reload.differences import Differences, differences, needing_restart
from interlingua.translator.reload.outcome import ReloadOutcome, ReloadRefusedError

_log = logging.getLogger(__name__)


class ConfigSuccession(Protocol):
    """See ``ServerSuccession``."""

    async def prepare(self) -> None: ...

    async def commit(self) -> None: ...

    async def finish(self) -> None: ...

    async def retire(self, hurry: asyncio.Future[None]) -> None: ...

    async def abort(self) -> None: ...

    def describe(self, found: Differences) -> None: ...


class Reloader:
    """Reloads the file at ``path``, whose contents were ``config``. ``succession`` makes the successor of
    what runs. ``watchers`` are called with True before a reload and with False after it, ``applied`` after
    one that was not refused. Use on one event loop."""

    def __init__(self, path: str, config: Config, succession: Callable[[Config], ConfigSuccession]) -> None:
        self.watchers: list[Callable[[bool], None]] = []
        self.applied: list[Callable[[], None]] = []
        self._path = path
        self._config = config
        self._succession = succession
        self._lock = asyncio.Lock()
        self._stopping = False
        self._tasks = BackgroundTasks()
        self._retiring: set[asyncio.Task[None]] = set()
        self._hurry: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def signalled(self) -> None:
        """Reload at a signal; the log has the result."""
        self._tasks.start(self._reload_into([]))

    async def reload(self) -> ReloadOutcome:
        """Apply the file as it is now, or leave everything as it is. Goes on when the caller disconnects."""
        outcomes: list[ReloadOutcome] = []
        await asyncio.shield(self._tasks.start(self._reload_into(outcomes)))
        return outcomes[0]

    async def configuration(self) -> dict[str, Any]:
        """What runs, and how the file differs; see ``translator.dashboard.configuration``."""
        return await configuration.report(self._path, self._config)

    async def stop(self) -> None:
        """Refuse further reloads, and finish the one that runs."""
        self._stopping = True
        await self._tasks.finish()

    async def close(self) -> None:
        """Free what reloads have replaced. The server has stopped."""
        await self.stop()
        if not self._hurry.done():
            self._hurry.set_result(None)
        await asyncio.gather(*self._retiring, return_exceptions=True)

    async def _reload_into(self, outcomes: list[ReloadOutcome]) -> None:
        outcomes.append(await self._reload())

    async def _reload(self) -> ReloadOutcome:
        async with self._lock:
            for watch in self.watchers:
                watch(True)
            try:
                outcome = await self._attempt()
            finally:
                for watch in self.watchers:
                    watch(False)
        if outcome.reloaded:
            _log.info("configuration reloaded", extra={"facts": outcome.facts()})
        else:
            _log.error("reload refused", extra={"facts": outcome.facts()})
        return outcome

    async def _attempt(self) -> ReloadOutcome:
        if self._stopping:
            return ReloadOutcome(errors=("the server is shutting down",))
        try:
            config = await asyncio.to_thread(load, self._path)
        except ConfigError as error:
            return ReloadOutcome(errors=tuple(error.lines))
        await asyncio.to_thread(log_former_names, self._path)
        fixed = needing_restart(self._config, config)
        if fixed:
            return ReloadOutcome(errors=tuple(f"{name}: a change needs a restart" for name in fixed))
        found = differences(self._config, config)
        succession = self._succession(config)
        errors = await prepared(succession)
        if errors:
            return ReloadOutcome(errors=errors)
        try:
            await succession.commit()
            await succession.finish()
        except Exception:
            _log.exception("unexpected error", extra={"facts": {"file": self._path}})
            return ReloadOutcome(errors=("unexpected error after the swap had begun: restart the server",))
        succession.describe(found)
        self._config = config
        for each in self.applied:
            each()
        self._retire(succession.retire(self._hurry))
        return ReloadOutcome(found)

    def _retire(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._retiring.add(task)
        task.add_done_callback(self._retired)

    def _retired(self, task: asyncio.Task[None]) -> None:
        self._retiring.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            _log.error("replaced part not freed", exc_info=failure)
        # documents, servers and connections refer to themselves; requests leave no cycles that would have the
        # collector run before dozens of configurations have come together
        gc.collect()


async def prepared(succession: ConfigSuccession) -> tuple[str, ...]:
    """Prepare ``succession``. Returns the reasons if that failed; then it is aborted."""
    errors: tuple[str, ...]
    try:
        await succession.prepare()
        return ()
    except ReloadRefusedError as error:
        errors = error.reasons
    except (OSError, LoadError, ValueError) as error:
        errors = (_reason(error),)
    except Exception:
        _log.exception("unexpected error")
        errors = ("unexpected error; the log has the details",)
    await succession.abort()
    return errors


def _reason(error: Exception) -> str:
    # the text of an error with a file name is complete
    text = isinstance(error, OSError) and error.filename is None and error.strerror
    return str(text or error)
