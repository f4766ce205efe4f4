"""Metrics and reports of the server as a whole: readiness, its reasons, and listeners."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from interlingua.schemas import ErrorCode, Operation, Readiness
from interlingua.translator.admin.merging import Rules, first
from interlingua.translator.admin.metrics import Family, Sample
from interlingua.translator.serving.operations import OPERATIONS, OperationRequest, Service
from interlingua.translator.serving.request_metrics import RequestMetrics

ByListener = Sequence[Mapping[str, RequestMetrics]]
"""The request metrics of each listener by dialect, in binding order."""

_PATIENCE_SECS = 0.5
"""How long a refresh waits for the readiness of upstreams."""


async def readiness(service: Service) -> dict[str, Any]:
    """The readiness that every dialect reports, and all reasons against it."""
    found: Readiness = await OPERATIONS[Operation.READY].perform(OperationRequest(service))
    if found.ready:
        return {"ready": True, "reasons": []}
    reasons = [found.reason]
    if service.is_online() and not service.draining:
        catalog = service.catalog
        names = sorted(service.required | catalog.requested_models)
        each = await asyncio.gather(*(catalog.readiness((name,)) for name in names))
        reasons = [state.reason for state in each if not state.ready] or reasons
    return {"ready": False, "reasons": reasons}


class ReadinessWatch:
    """:func:`readiness` for frequent readers: one request at a time for all of them, and the last known
    result if it takes long."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._pending: asyncio.Task[dict[str, Any]] | None = None
        self._known: dict[str, Any] = {"ready": False, "reasons": ["not known yet: waiting for an upstream"]}

    async def look(self) -> dict[str, Any]:
        pending = self._pending = self._pending or asyncio.create_task(readiness(self._service))
        await asyncio.wait((pending,), timeout=_PATIENCE_SECS)
        if pending.done():
            self._known = pending.result()
            if self._pending is pending:
                self._pending = None
        return self._known

    async def close(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
            await asyncio.wait((self._pending,))


def overview(service: Service, by_listener: ByListener) -> dict[str, Any]:
    return {
        "name": service.metadata.name,
        "id": service.id,
        "version": service.metadata.version,
        "uptime_secs": round((time.monotonic_ns() - service.started_ns) / 1e9, 1),
        "draining": service.draining,
        "online": not service.offline,
        "listeners": [
            {
                "address": listening.address,
                "transport": listening.transport,
                "dialects": {dialect: _counted(metrics) for dialect, metrics in counted.items()},
            }
            for listening, counted in zip(service.listeners, by_listener, strict=False)
        ],
    }


MERGING: Rules = {
    **dict.fromkeys(("name", "id", "version", "address", "transport"), first),
    "uptime_secs": max,
    "draining": lambda one, other: one or other,
    "online": lambda one, other: one and other,
}
"""How the overviews of two processes become one."""

GAUGES = frozenset({"in_flight", "streams"})


def families(service: Service) -> Iterator[Family]:
    text = "Whether the server is draining before it stops."
    yield Family("interlingua_draining", "gauge", text, [Sample(service.draining)])
    text = "Whether the server is online in all dialects; clients can set it offline in grps."
    yield Family("interlingua_online", "gauge", text, [Sample(not service.offline)])
    text = "Tasks of the event loop."
    yield Family("interlingua_event_loop_tasks", "gauge", text, [Sample(len(asyncio.all_tasks()))])
    access = service.access
    records = {
        "written": access.recorded - access.dropped,
        "suppressed": access.suppressed,
        "dropped": access.dropped,
    }
    text = "Records of the access log: written, beyond the rate of errors, or lost to a slow reader."
    samples = [Sample(count, {"outcome": outcome}) for outcome, count in records.items()]
    yield Family("interlingua_access_log_records_total", "counter", text, samples)
    regions = service.shared_memory.status()
    text = "Registered shared memory regions."
    yield Family("interlingua_shared_memory_regions", "gauge", text, [Sample(len(regions))])
    text = "Bytes of registered shared memory regions."
    size = sum(region.byte_size for region in regions)
    yield Family("interlingua_shared_memory_bytes", "gauge", text, [Sample(size)])


def _counted(metrics: RequestMetrics) -> dict[str, Any]:
    codes: Counter[str] = Counter()
    for (_, code), count in metrics.ended.items():
        codes["OK" if code is None else code.name] += count
    return {
        "requests": codes.total(),
        "in_flight": metrics.in_flight,
        "streams": metrics.streams,
        "shed": codes[ErrorCode.OVERLOADED.name],
        "cancelled": codes[ErrorCode.CANCELLED.name],
        "codes": codes,
        "received_bytes": metrics.received_bytes,
        "sent_bytes": metrics.sent_bytes,
    }
