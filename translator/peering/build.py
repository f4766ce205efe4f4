"""Builds the peers that the configuration describes: an upstream whose servers include this daemon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from ipaddress import ip_address
from operator import eq

from interlingua.protocols.transport.address import Address, parse_address, parse_url
from interlingua.protocols.transport.resolve import is_name, is_of_this_machine
from interlingua.runtime.peers.owners import IsLost, Owners
from interlingua.runtime.peers.peers import FORWARDED, Peers
from interlingua.runtime.target import Target
from interlingua.runtime.upstream.pool import Member
from interlingua.translator.access.addresses import read_address
from interlingua.translator.config.options import Config
from interlingua.translator.config.peers import NAME, PeersOptions
from interlingua.translator.config.upstreams import UpstreamOptions
from interlingua.translator.upstream_assembly import upstream_of

_WIDE = (ip_address("0.0.0.0"), ip_address("::"))


def peers_of(config: Config, models: Mapping[str, Target]) -> Peers | None:
    """The peers, if there are any. The daemon forgets the sequences of ``models`` that move to another.
    Raises ``OSError`` for the files of TLS and of headers."""
    options = config.peers
    if options is None:
        return None
    mine = parse_address(options.listener)
    owners = Owners(
        options.settle_secs if options.changes else None,
        lambda member: is_here(member, addresses(member), mine, options.advertised),
    )
    upstream = upstream_of(NAME, _upstream_options(options), owners, {FORWARDED: lambda: "1"})
    discovery = upstream.pool.discovery
    assert discovery is not None, "every upstream of a configuration has one"  # noqa: S101
    addresses = discovery.addresses
    discovery.confirmed = owners.confirm
    owners.changed(upstream.pool.members)

    def lose(is_lost: IsLost) -> None:
        for model in list(models.values()):
            model.end_sequences(is_lost)

    owners.lose = lose
    return Peers(upstream, owners)


def _upstream_options(options: PeersOptions) -> UpstreamOptions:
    return UpstreamOptions.model_construct(
        dialect="oip",
        transport="grpc",
        flavor="triton",
        urls=options.urls,
        tls=options.tls,
        headers=options.headers,
        **{
            name: getattr(options, name)
            for name in (
                *("resolve_interval_secs", "connect_timeout_secs", "request_timeout_secs"),
                "probe_interval_secs",
            )
        },
    )


def is_here(member: Member, addresses: Sequence[str], mine: Address, advertised: Address | None) -> bool:
    """Whether ``member``, a peer with the numeric ``addresses``, is this daemon, which listens at ``mine``:
    by what it has ``advertised``, else by an address of this machine with the port of the listener."""
    known = parse_url(member.url.partition(" ")[0], "grpc").address
    if advertised is not None:
        return known == advertised or (known.port == advertised.port and advertised.host in addresses)
    if known.path or mine.path:
        return known == mine
    if known.port != mine.port:
        return False
    if not addresses:
        # a name without addresses may have some later
        addresses = () if is_name(known.host) else (known.host,)
    wide = not mine.host or is_name(mine.host) or read_address(mine.host) in _WIDE
    return any(map(is_of_this_machine if wide else partial(eq, mine.host), addresses))
