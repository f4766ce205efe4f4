"""Work of a transport that takes too long for an event loop and releases the interpreter's lock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from interlingua.schemas import offload
from interlingua.schemas.offload import DecodingLimits

T = TypeVar("T")


async def in_thread(limits: DecodingLimits, function: Callable[..., T], *arguments: Any) -> T:
    """The result of ``function`` in a thread: in an offload thread, where clients take turns, on an event
    loop that has some. Raises as ``function``, and OVERLOADED if too many messages wait."""
    offloader = offload.offloader()
    if offloader is None:
        return await asyncio.to_thread(function, *arguments)
    return await offloader.run(limits, function, *arguments)
