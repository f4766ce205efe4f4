"""The cluster that the models of this process run on: connected, watched, and connected again when lost.

Calls that change the cluster run in one thread, in order; the watch queries it in another, because a call to
a lost cluster may not return. After a loss every deployment is deployed again, so that its model answers
without any change of its files.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.ray_serve import connection
from interlingua.runtime.ray_serve.connection import ClusterView
from interlingua.runtime.ray_serve.options import ClusterOptions

T = TypeVar("T")

WATCH_SECS = 1.0

_LOOK_SECS = 2 * connection.LOOK_SECS

_LOST_AFTER = 3
"""So many failed looks in a row mean that the cluster is lost; one that does not return suffices."""

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
        self._looks = ThreadPoolExecutor(1, thread_name_prefix="ray-look")
        self._stopped = threading.Event()
        self._watch: threading.Thread | None = None

    def call(self, run: Callable[[], T]) -> Future[T]:
        """Run ``run`` in the thread of the driver, after the calls before."""
        return self._calls.submit(run)

    def connect(self) -> None:
        """Connect unless it is done. Blocks. Raises ``LoadError``."""
        with self.lock:
            if self._watch is not None:
                return
            try:
                self.call(lambda: connection.connect(self.options)).result(self.options.load_timeout_secs)
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
            # the call may never return: the next one needs another thread
            self._looks = ThreadPoolExecutor(1, thread_name_prefix="ray-look")
            raise
        self.view, self.reason = view, ""
        for deployment in self._each():
            deployment.seen(view)
        return view

    def close(self) -> None:
        """Disconnect, and stop a local cluster. Blocks."""
        self._stopped.set()
        if self._watch is not None:
            self._watch.join(connection.LOOK_SECS)
        self.call(connection.disconnect).result()
        self._calls.shutdown()

    def _each(self) -> list[Watched]:
        with self.lock:
            return list(self.deployments.values())

    def _keep(self) -> None:
        failed = 0
        while not self._stopped.wait(WATCH_SECS):
            if self.view is None:
                self._connect_again()
                continue
            try:
                self.look()
                failed = 0
            except Exception as error:
                # Ray documents no class of error for it, and the watch has to go on
                failed += 1
                certain = isinstance(error, ConnectionError | TimeoutError) or failed >= _LOST_AFTER
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
            self.call(again).result()
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
