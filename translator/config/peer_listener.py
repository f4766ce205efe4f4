"""The listener to which peers forward requests."""

from __future__ import annotations

from collections.abc import Iterator

from interlingua.protocols.transport.address import parse_address
from interlingua.translator.access.addresses import is_local, read_address
from interlingua.translator.access.grants import ANYONE, DEFAULTS
from interlingua.translator.config.document import Path
from interlingua.translator.config.options import Config, ListenerOptions
from interlingua.translator.config.peers import NAME


def peer_errors(config: Config) -> Iterator[tuple[Path, str]]:
    """An error for each reason why the listener of ``peers`` cannot serve them, with its place in
    ``config``."""
    if config.peers is None:
        return
    if NAME in config.upstreams:
        yield ("upstreams", NAME), f"'{NAME}' is the name of the daemons under peers: choose another one"
    number, listener = next(
        (number, each) for number, each in enumerate(config.listeners) if serves_peers(config, each)
    )
    place: Path = ("peers", "listener")
    if listener.transport != "grpc" or listener.dialects != ("oip",):
        yield place, f"'{listener.listen}' must have transport: grpc and dialects: [oip]"
    if not parse_address(listener.listen).path and not parse_address(listener.listen).port:
        yield place, f"'{listener.listen}' must have a port, which the other daemons know"
    if not _is_restricted(listener):
        text = "must name the peers, because they forward what they have permitted: a network or a key"
        yield ("listeners", number, "allow"), f"inference {text}, or tls with client: require"


def serves_peers(config: Config, listener: ListenerOptions) -> bool:
    """Whether peers may forward requests to ``listener``."""
    return config.peers is not None and config.peers.listener == listener.listen


def _is_restricted(listener: ListenerOptions) -> bool:
    """Whether not anyone can request inference."""
    address = parse_address(listener.listen)
    if address.path or address.host == "localhost" or is_local(read_address(address.host)):
        return True
    if listener.tls is not None and listener.tls.client == "require":
        return True
    return ANYONE not in {**DEFAULTS, **listener.allow}["inference"]
