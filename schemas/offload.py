"""Work on messages that takes too long for an event loop: who carries it out, and how much of it is allowed.

A codec passes long work to :func:`call`. On an event loop that serves clients the call raises
``OffloadRequired``; the server then runs the whole codec function again in one of its offload threads, where
the call runs in the thread's process. Without a server (in a command-line tool, in such a process) it runs at
once. Codec functions are pure, so running one twice is safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from interlingua.schemas.errors import ErrorCode, InferenceError

T = TypeVar("T")

KEY_WEIGHT = 256
"""How many elements of a tensor a key, or a value outside of tensors, counts for: each becomes an object."""


@dataclass(frozen=True, slots=True)
class DecodingLimits:
    """The limits on the work for one message, counted before anything is built: bytes after decompression,
    their ratio to the compressed ones, and elements, keys and strings. ``owner`` has the options."""

    max_decompressed_bytes: int = 256 << 20
    max_compression_ratio: int = 100
    max_elements: int = 16_000_000
    owner: str = "listener"

    def check_elements(self, count: int, what: str) -> None:
        """Raise TOO_LARGE if ``what`` has, or counts as, more than ``max_elements``."""
        if count > self.max_elements:
            raise InferenceError(
                ErrorCode.TOO_LARGE,
                f"{what} counts as {count} elements, more than the {self.max_elements} that max_elements of "
                f"this {self.owner} allows",
            )


MIN_DECOMPRESSED_BYTES = 1 << 21
"""The lowest ``max_decompressed_bytes``: more than a message has that is decompressed on the event loop."""

MIN_ELEMENTS = 1 << 18
"""The lowest ``max_elements``: a message that is decoded on the event loop has fewer elements."""

DEFAULT_LIMITS = DecodingLimits()


CLIENT: ContextVar[str] = ContextVar("client", default="")
"""The client that the running task works for, as ``Context.peer`` has it: clients take turns."""


class Offloader(Protocol):
    """The threads and processes of one event loop."""

    async def run(self, limits: DecodingLimits, function: Callable[..., T], *arguments: Any) -> T:
        """The result of ``function``, run in a thread with ``limits``. Raises as ``function``, and OVERLOADED
        if too many messages wait."""


class OffloadRequired(Exception):  # noqa: N818 - a request to the caller, no error
    """The function that raises this needs an offload thread, which ``offloader`` has."""

    def __init__(self, offloader: Offloader) -> None:
        super().__init__("work for an offload thread")
        self.offloader = offloader


class _Thread(threading.local):
    """What this thread does with long work: raise for ``offloader``, or hand it to ``process``."""

    offloader: Offloader | None = None
    process: Callable[..., Any] | None = None
    limits: DecodingLimits = DEFAULT_LIMITS


_thread = _Thread()


def limits() -> DecodingLimits:
    """The limits of the message that this thread decodes, known after :func:`require`: short messages are
    within all limits."""
    return _thread.limits


def require() -> None:
    """Go on only where long work is allowed. Raises ``OffloadRequired`` on an event loop."""
    if _thread.offloader is not None:
        raise OffloadRequired(_thread.offloader)


def call(function: Callable[..., T], *arguments: Any) -> T:
    """``function(*arguments)`` in the process of this thread, or here if it has none. In a process, buffers
    and arrays are shared memory; the function must be importable. Raises as ``function``, and
    ``OffloadRequired`` on an event loop."""
    require()
    if _thread.process is None:
        return function(*arguments)
    result: T = _thread.process(_thread.limits, function, arguments)
    return result


def offloader() -> Offloader | None:
    """The threads and processes of this event loop, if it has some."""
    return _thread.offloader


class OffloadRole:
    """A context manager: what this thread does with long work, in its scope."""

    def __init__(self, **role: Any) -> None:
        self._role = role
        self._before: dict[str, Any] = {}

    def __enter__(self) -> None:
        for name, value in self._role.items():
            self._before[name] = getattr(_thread, name)
            setattr(_thread, name, value)

    def __exit__(self, *failure: object) -> None:
        for name, value in self._before.items():
            setattr(_thread, name, value)
