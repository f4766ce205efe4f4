"""What operators are told of the server as a whole: whether it is ready and why not, and where it listens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from interlingua.schemas import ErrorCode, Operation, Readiness
from interlingua.translator.admin.metrics import Family, Sample
from interlingua.translator.serving.operations import OPERATIONS, Asked, Service
from interlingua.translator.serving.request_metrics import Tally

ByListener = Sequence[Mapping[str, Tally]]
"""What each listener has counted, by dialect, in the order in which they are bound."""

_PATIENCE_SECS = 0.5
"""How long a look waits for upstreams that are asked whether they are ready."""


async def readiness(service: Service) -> dict[str, Any]:
    """The answer that every dialect gives to the question whether the server is ready, and all that keeps it
    from being so."""
    said: Readiness = await OPERATIONS[Operation.READY](Asked(service))
    if said.ready:
        return {"ready": True, "reasons": []}
    reasons = [said.reason]
    if service.online and not service.draining:
        catalog = service.catalog
        names = sorted(service.required | catalog.asked_for)
        each = await asyncio.gather(*(catalog.readiness((name,)) for name in names))
        reasons = [state.reason for state in each if not state.ready] or reasons
    return {"ready": False, "reasons": reasons}


class ReadinessWatch:
    """:func:`readiness` for those who look often and wait little: asked once at a time, however many look,
    and what was known before where the answer takes long."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._asking: asyncio.Task[dict[str, Any]] | None = None
        self._known: dict[str, Any] = {"ready": False, "reasons": ["not known yet: an upstream is asked"]}

    async def look(self) -> dict[str, Any]:
        """What is known now."""
        asking = self._asking = self._asking or asyncio.create_task(readiness(self._service))
        await asyncio.wait((asking,), timeout=_PATIENCE_SECS)
        if asking.done():
            self._known = asking.result()
            if self._asking is asking:
                self._asking = None
        return self._known

    async def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait((self._asking,))


def overview(service: Service, tallies: ByListener) -> dict[str, Any]:
    """The server and its listeners, at once."""
    return {
        "name": service.metadata.name,
        "id": service.id,
        "version": service.metadata.version,
        "uptime_secs": round((time.monotonic_ns() - service.started_ns) / 1e9, 1),
        "draining": service.draining,
        "online": service.online,
        "listeners": [
            {
                "address": listening.address,
                "transport": listening.transport,
                "dialects": {dialect: _counted(tally) for dialect, tally in counted.items()},
            }
            for listening, counted in zip(service.listeners, tallies, strict=False)
        ],
    }


def families(service: Service) -> Iterator[Family]:
    """Whether the server has been told to leave, or to look as if it were not ready."""
    text = "Whether the server shuts down."
    yield Family("interlingua_draining", "gauge", text, [Sample(service.draining)])
    text = "Whether a client has left the server switched on; one that is offline says that it is not ready."
    yield Family("interlingua_online", "gauge", text, [Sample(service.online)])


def _counted(tally: Tally) -> dict[str, Any]:
    codes: dict[str, int] = {}
    for (_, code), count in tally.ended.items():
        name = "OK" if code is None else code.name
        codes[name] = codes.get(name, 0) + count
    return {
        "requests": sum(codes.values()),
        "in_flight": tally.in_flight,
        "shed": codes.get(ErrorCode.OVERLOADED.name, 0),
        "cancelled": codes.get(ErrorCode.CANCELLED.name, 0),
        "codes": codes,
        "received_bytes": tally.received_bytes,
        "sent_bytes": tally.sent_bytes,
    }
