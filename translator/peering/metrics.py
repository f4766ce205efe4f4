"""Metrics of the daemons that share sequences."""

from __future__ import annotations

from collections.abc import Iterator

from interlingua.runtime.peers.peers import Peers
from interlingua.translator.admin.metrics import Family, Sample


def peer_families(peers: Peers) -> Iterator[Family]:
    text = "Requests with a sequence to local models, by where their owner is, as far as it is certain."
    samples = [Sample(count, {"outcome": outcome}) for outcome, count in peers.counts.items()]
    yield Family("interlingua_peer_requests_total", "counter", text, samples)
    text = "Whether the owners of all sequences are certain."
    yield Family("interlingua_peers_settled", "gauge", text, [Sample(peers.owners.settled)])
