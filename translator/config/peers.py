"""The options of several daemons that share sequences."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator, model_validator

from interlingua.protocols.section import Seconds, Section, Text
from interlingua.protocols.transport.address import Address, parse_url
from interlingua.protocols.transport.resolve import is_name
from interlingua.runtime.upstream.members_file import members_path
from interlingua.translator.config.headers import HeaderOptions, OwnName
from interlingua.translator.config.references import KnownListener, PeerUrl
from interlingua.translator.config.tls import UpstreamTlsOptions
from interlingua.translator.config.values import distinct

NAME = "peers"
"""The name of the peers among upstreams, in reports and metrics."""


class PeersOptions(Section):
    """The daemons that serve the same local models as this one, behind one balancer: a request of a sequence
    runs at the daemon that owns the sequence, wherever it arrives."""

    listener: KnownListener
    """The `listen` address of the listener, over grpc and with the dialect `oip` alone, to which peers
    forward requests. Its `allow` must restrict `inference` to them."""
    urls: Annotated[tuple[PeerUrl, ...], Field(min_length=1)]
    """These listeners of all daemons, this one included: `host:port` or `unix:path`, the same list for all;
    each address of a name is a daemon, such as those of a headless service; or one `file:path`, a
    [members file](upstreams.md#members-file)."""
    advertise: Text | None = None
    """The entry or address of this daemon in `urls`. The default is the address of this machine with the port
    of `listener`."""
    resolve_interval_secs: Seconds = 5.0
    """The interval between DNS lookups of the names in `urls`, and between looks at the file."""
    settle_secs: Seconds = 30.0
    """How long a sequence is refused after a change of the list that moves it, all of them after a start or
    a time without an answer of DNS. At least twice the time in which all daemons learn of a change, which is
    no less than `resolve_interval_secs`. Not for a list of addresses, which does not change."""
    tls: UpstreamTlsOptions | None = None
    """TLS to all peers. The default is none."""
    connect_timeout_secs: Seconds = 5.0
    """The time limit for connecting."""
    request_timeout_secs: Seconds = 60.0
    """The time limit of one request, connecting included; a caller's own deadline may end it sooner."""
    probe_interval_secs: Annotated[float, Field(ge=0)] = 5.0
    """The interval between readiness probes of each peer; 0 for none."""
    headers: dict[OwnName, HeaderOptions] = Field(default={})
    """Headers to add to every call and probe, such as the `key` that `allow` of the listener requires."""

    @field_validator("urls")
    @classmethod
    def _distinct(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        if len(urls) > 1 and any(map(members_path, urls)):
            raise ValueError("a members file must be the only entry: list the other daemons in it")
        return distinct("URL", urls)

    @field_validator("advertise")
    @classmethod
    def _address(cls, value: str) -> str:
        parse_url(value, "grpc")
        return value

    @model_validator(mode="after")
    def _settles(self) -> PeersOptions:
        least = 2 * self.resolve_interval_secs
        if self.changes and self.settle_secs < least:
            raise ValueError(f"settle_secs must be at least twice resolve_interval_secs, {least:g}")
        return self

    @property
    def changes(self) -> bool:
        """Whether the list of peers may change: it has a name, or is in a file."""
        return any(members_path(url) or is_name(parse_url(url, "grpc").address.host) for url in self.urls)

    @property
    def advertised(self) -> Address | None:
        """What ``advertise`` says."""
        return None if self.advertise is None else parse_url(self.advertise, "grpc").address
