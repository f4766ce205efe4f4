"""Metrics of what each listener carries, and of what exceeded its limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from interlingua.protocols.transport.load import ListenerLoad
from interlingua.schemas import ListenerAddress
from interlingua.translator.admin.metrics import Family, Sample


def families(listening: Sequence[tuple[ListenerAddress, ListenerLoad]]) -> Iterator[Family]:
    loads = [({"listener": each.address, "transport": each.transport}, load) for each, load in listening]
    yield Family(
        "interlingua_connections",
        "gauge",
        "Open connections of clients.",
        [
            Sample(count, {**labels, "transport": protocol})
            for labels, load in loads
            for protocol, count in _by_protocol(labels["transport"], load)
        ],
    )
    yield Family(
        "interlingua_inflight_bytes",
        "gauge",
        "Bytes of request bodies that have arrived and are not answered, with what decompression adds.",
        [Sample(load.body_bytes, labels) for labels, load in loads],
    )
    yield Family(
        "interlingua_refused_total",
        "counter",
        "Connections and requests above a limit of the listener, the server or a client, by option, or "
        "'descriptors' where the process has few file descriptors left.",
        [
            Sample(count, {**labels, "reason": reason})
            for labels, load in loads
            for reason, count in load.refused.items()
        ],
    )


def _by_protocol(transport: str, load: ListenerLoad) -> Iterable[tuple[str, int]]:
    """The connections of a listener, on a port of any transport by protocol."""
    return load.protocols.items() if transport == "any" else ((transport, load.connections),)
