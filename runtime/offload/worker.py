"""An offload process: carries out calls, one after the other, until its thread closes the connection."""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
from typing import Any

from interlingua.runtime.offload.frames import receive, send
from interlingua.schemas import ErrorCode, InferenceError
from interlingua.schemas.offload import OffloadRole

_OWN_BYTES = 512 << 20
"""The private memory of a process without a message."""

_MESSAGE_COPIES = 4
"""How many times ``max_decompressed_bytes`` the objects of a message may take."""


def main(descriptor: int) -> None:
    """Serve the socket ``descriptor``."""
    # the daemon ends this process by closing the socket; a terminal sends its signals to both
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sock = socket.socket(fileno=descriptor)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            limits, function, arguments = receive(sock)
            _bound_memory(_OWN_BYTES + _MESSAGE_COPIES * limits.max_decompressed_bytes)
            with OffloadRole(limits=limits):
                result = _outcome(function, arguments)
            # the message must not stay in memory until the next one
            del arguments
            send(sock, result)
            del result


def _outcome(function: Any, arguments: Any) -> tuple[Any, BaseException | None]:
    """The result of the call, or its error."""
    try:
        return function(*arguments), None
    except MemoryError:
        return None, InferenceError(ErrorCode.TOO_LARGE, "the message takes too much memory to decode")
    except InferenceError as error:
        return None, error
    except Exception as failure:
        return None, RuntimeError(f"{type(failure).__name__}: {failure}")


def _bound_memory(nbytes: int) -> None:
    # private memory alone: files in memory belong to the messages, which transports limit
    resource.setrlimit(resource.RLIMIT_DATA, (nbytes, resource.getrlimit(resource.RLIMIT_DATA)[1]))
