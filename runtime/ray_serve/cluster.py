"""The cluster that the models of this process run on: connected, watched, and connected again when lost.

Calls that change the cluster run in one thread, in order; the watch queries it in another, and tensors are
written in further ones. A call to a lost cluster may not return: then its thread is left to it, and another
one takes its place. After a loss every deployment is deployed again, so that its model answers without any
change of its files.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.ray_serve import connection
from interlingua.runtime.ray_serve.connection import ClusterView
from interlingua.runtime.ray_serve.options import ClusterOptions

T = TypeVar("T")

WATCH_SECS = 1.0

_LOOK_SECS = 2 * connection.LOOK_SECS

_CLOSE_SECS = 15.0
"""The timeout of the end of a connection. The processes of a local cluster end with this one in any case."""

_PUTS = 8
"""So many tensors are written into the object store at a time."""

_LOST_SECS = 15.0
"""A cluster that cannot be seen for so long is lost. Its controller may be starting again, without which
replicas go on."""

_log = logging.getLogger(__name__)


class Watched(Protocol):
    """A deployment, as the cluster needs it. The cluster calls it from the thread of the watch."""

    def seen(self, view: ClusterView) -> None:
        """The cluster is as in ``view``."""

    def lost(self, reason: str) -> None:
        """The connection is lost: what runs fails."""

    def deploy_again(self) -> None:
        """Deploy what was deployed on the cluster that was lost. In the thread of the driver."""


class Cluster:
    """``view`` is the cluster as it was seen last, None while there is no connection, for the ``reason``.
    ``token`` names this user of it. Thread-safe."""

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options
        self.token = secrets.token_hex(8)
        self.view: ClusterView | None = None
        self.reason = "not connected to Ray yet"
        self.deployments: dict[str, Any] = {}
        self.lock = threading.RLock()
        self._calls = ThreadPoolExecutor(1, thread_name_prefix="ray")
        self._puts = ThreadPoolExecutor(_PUTS, thread_name_prefix="ray-put")
        self._looks = ThreadPoolExecutor(1, thread_name_prefix="ray-look")
        self._stopped = threading.Event()
        self._watch: threading.Thread | None = None

    def submit(self, run: Callable[[], T]) -> Future[T]:
        """Run ``run`` in the thread of the driver, after the calls before."""
        return self._calls.submit(run)

    def call(self, run: Callable[[], T], timeout_secs: float = 0.0) -> T:
        """The result of ``run``, as :meth:`submit`, by ``timeout_secs``, by default that of a load. Blocks.
        Raises TimeoutError, and what Ray raises."""
        calls = self._calls
        called = calls.submit(run)
        try:
            return called.result(timeout_secs or self.options.load_timeout_secs)
        except TimeoutError:
            if not called.done():
                self._calls = ThreadPoolExecutor(1, thread_name_prefix="ray")
                calls.shutdown(wait=False, cancel_futures=True)
            raise

    async def put(self, array: NDArray[np.uint8]) -> Any:
        """The reference of ``array`` in the object store. In a thread: the raylet may not answer."""
        return await asyncio.get_running_loop().run_in_executor(self._puts, connection.put, array)

    def connect(self) -> None:
        """Connect unless it is done. Blocks. Raises ``LoadError``."""
        with self.lock:
            if self._watch is not None:
                return
            try:
                self.call(lambda: connection.connect(self.options))
                self.look()
            except Exception as error:
                # Ray documents no class of error for it
                self.reason = f"the Ray cluster at {self.options.address} is not reachable: {_text(error)}"
                raise LoadError(self.reason) from error
            _log.info("Ray cluster connected", extra={"facts": {"address": self.options.address}})
            self._watch = threading.Thread(target=self._keep, name="ray-watch", daemon=True)
            self._watch.start()

    def look(self) -> ClusterView:
        """The cluster now. Blocks. Raises what Ray raises."""
        looking = self._looks.submit(connection.look)
        try:
            view = looking.result(_LOOK_SECS)
        except TimeoutError:
            if looking.done():
                raise
            # the call may never return: the next one needs another thread
            self._looks = ThreadPoolExecutor(1, thread_name_prefix="ray-look")
            raise ConnectionError("it does not answer") from None
        self.view, self.reason = view, ""
        for deployment in self._each():
            deployment.seen(view)
        return view

    def close(self) -> None:
        """Disconnect, and stop a local cluster. Blocks."""
        self._stopped.set()
        if self._watch is not None:
            self._watch.join(connection.LOOK_SECS)
        try:
            self.call(connection.disconnect, _CLOSE_SECS)
        except TimeoutError:
            facts = {"address": self.options.address, "reason": "timeout"}
            _log.warning("Ray cluster not disconnected", extra={"facts": facts})
        for threads in (self._calls, self._puts):
            threads.shutdown(wait=False, cancel_futures=True)

    def _each(self) -> list[Watched]:
        with self.lock:
            return list(self.deployments.values())

    def _keep(self) -> None:
        seen = time.monotonic()
        while not self._stopped.wait(WATCH_SECS):
            if self.view is None:
                self._connect_again()
                seen = time.monotonic()
                continue
            try:
                self.look()
                seen = time.monotonic()
            except Exception as error:
                # Ray documents no class of error for it, and the watch has to go on
                certain = isinstance(error, ConnectionError) or time.monotonic() - seen > _LOST_SECS
                if certain and not self._stopped.is_set():
                    self._lose(_text(error))

    def _lose(self, why: str) -> None:
        _log.error("Ray cluster lost", extra={"facts": {"address": self.options.address, "reason": why}})
        self.view, self.reason = None, f"the Ray cluster at {self.options.address} is lost: {why}"
        for deployment in self._each():
            deployment.lost(self.reason)

    def _connect_again(self) -> None:
        def again() -> None:
            connection.disconnect()
            connection.connect(self.options)
            for deployment in self._each():
                deployment.deploy_again()

        try:
            self.call(again)
            self.look()
        except Exception as error:
            # as above; the next try follows
            _log.debug("Ray cluster unreachable", extra={"facts": {"reason": _text(error)}})
            self._stopped.wait(WATCH_SECS)
        else:
            _log.info("Ray cluster connected", extra={"facts": {"address": self.options.address}})


def _text(error: BaseException) -> str:
    """The first line of ``error``."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


_clusters: dict[ClusterOptions, Cluster] = {}
_users: dict[ClusterOptions, int] = {}
_lock = threading.Lock()


def acquire(options: ClusterOptions) -> Cluster:
    """The cluster of ``options``, for a user that will :func:`release` it. Raises ``LoadError`` if the
    process uses another: Ray has one driver in a process."""
    with _lock:
        if options not in _clusters:
            if _clusters:
                used = next(iter(_clusters)).address
                raise LoadError(f"ray: this process is connected to the cluster at {used}: restart it")
            _clusters[options] = Cluster(options)
        _users[options] = _users.get(options, 0) + 1
        return _clusters[options]


def release(options: ClusterOptions) -> None:
    """Disconnect after the last user. Blocks."""
    with _lock:
        _users[options] -= 1
        if not _users[options]:
            del _users[options]
            _clusters.pop(options).close()


def current() -> Cluster | None:
    """The cluster that this process uses, if any."""
    return next(iter(_clusters.values()), None)
