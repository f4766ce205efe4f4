"""Builds the upstreams that the configuration describes, and their models. Connections open on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from interlingua.protocols.dialect import Binding
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.client_options import ClientOptions
from interlingua.protocols.transport.clients import client_of
from interlingua.protocols.transport.reach import unreachable
from interlingua.protocols.transport.resolve import is_name, resolve
from interlingua.protocols.transport.tls import ALPN, TlsContext
from interlingua.runtime.target import Target
from interlingua.runtime.upstream.attributes import Attributes
from interlingua.runtime.upstream.dropped_fields import DroppedFields
from interlingua.runtime.upstream.forwarding import Forwarding
from interlingua.runtime.upstream.header_file import HeaderFile
from interlingua.runtime.upstream.members_file import MembersFile
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.runtime.upstream.pool import (
    Discovery,
    Gate,
    HostName,
    Listing,
    Member,
    Pool,
    Probes,
    Weighted,
    members_at,
)
from interlingua.runtime.upstream.pool.homes import SequenceServers
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas.offload import DecodingLimits
from interlingua.translator.config.members import members_file
from interlingua.translator.config.models import ModelOptions
from interlingua.translator.config.options import Config, ListenerOptions
from interlingua.translator.config.upstreams import UpstreamOptions


def upstream_models(
    config: Config, kept: Mapping[str, Upstream] | None = None
) -> tuple[dict[str, Upstream], dict[str, Target]]:
    """The upstreams of ``config``, those in ``kept`` as they are, and their models."""
    kept = kept or {}
    upstreams = {
        name: kept.get(name) or upstream_of(name, options) for name, options in config.upstreams.items()
    }
    models: dict[str, Target] = {
        name: _upstream_model(name, model, config.upstreams[model.upstream], upstreams)
        for name, model in config.models.items()
        if model.upstream is not None
    }
    return upstreams, models


def binding_of(options: UpstreamOptions) -> Binding:
    """The dialect of an upstream over its transport."""
    return DIALECTS[options.dialect].bindings[options.transport]


def upstream_of(
    name: str,
    options: UpstreamOptions,
    homes: SequenceServers | None = None,
    own_headers: Mapping[str, Callable[[], str]] | None = None,
) -> Upstream:
    """The upstream ``name``. Its sequences have their servers by ``homes``. ``own_headers`` are added to
    those of ``options``. Raises ``OSError`` for the files of TLS and of headers."""
    binding = binding_of(options)
    found_out = options.flavor == "auto"
    return Upstream(
        name,
        binding.calls if found_out else binding.flavored(options.flavor).calls,
        _pool(options, homes),
        options.request_timeout_secs,
        binding.call_flavors if found_out else None,
        _gate(options),
        _forwarding(options, own_headers),
        limits=decoding_limits(options),
    )


def decoding_limits(options: ListenerOptions | UpstreamOptions) -> DecodingLimits:
    """The limits on the work for one message of a listener or an upstream."""
    return DecodingLimits(
        options.max_decompressed_bytes,
        options.max_compression_ratio,
        options.max_elements,
        "upstream" if isinstance(options, UpstreamOptions) else "listener",
    )


def _forwarding(options: UpstreamOptions, more: Mapping[str, Callable[[], str]] | None) -> Forwarding:
    own = {name: HeaderFile(each.file).value for name, each in options.headers.items()}
    return Forwarding(options.forward_headers, {**own, **(more or {})})


def _pool(options: UpstreamOptions, homes: SequenceServers | None = None) -> Pool:
    make, path = partial(_server, options, _tls(options)), members_file(options)
    listing = None if path is None else Listing(MembersFile(path, options.transport), make)
    servers = [] if listing else [make(url) for url in options.urls]
    names = [each for each in servers if isinstance(each, HostName)]
    interval = options.probe_interval_secs
    return Pool(
        listing.members() if listing else [member for each in servers for member in members_at(each)],
        Probes(interval, options.connect_timeout_secs) if interval else None,
        Discovery(names, resolve, options.resolve_interval_secs, listing),
        Weighted(options.zone or "", options.slow_start_secs),
        homes,
    )


def _server(options: UpstreamOptions, tls: TlsContext | None, url: str) -> HostName | Member:
    """The server at ``url``, or the host name to follow."""
    address = parse_url(url, options.transport).address
    if is_name(address.host):
        return HostName.of(address.host, address.port, partial(_member, url, options, tls))
    return _member(url, options, tls)


def _member(url: str, options: UpstreamOptions, tls: TlsContext | None, at: str = "") -> Member:
    place = parse_url(url, options.transport)
    client = client_of(options.transport, options.engine)(
        place,
        ClientOptions(
            connect_timeout_secs=options.connect_timeout_secs,
            max_response_bytes=options.max_response_bytes,
            limits=decoding_limits(options),
            at=at,
            tls=tls,
        ),
    )
    reach = partial(unreachable, place.address, options.connect_timeout_secs, tls, at)
    return Member(client, f"{url} ({at})" if at else url, options.eject_after_failures, reach)


def _tls(options: UpstreamOptions) -> TlsContext | None:
    """TLS to the servers. Raises ``OSError`` for files that are not usable."""
    if options.tls is None:
        return None
    return TlsContext(options.tls.build(ALPN[options.transport].upstream))


def _gate(options: UpstreamOptions) -> Gate | None:
    if options.max_concurrency is None and options.max_bytes_in_flight is None:
        return None
    return Gate(options.max_concurrency, options.max_bytes_in_flight, options.max_wait_secs)


def _upstream_model(
    name: str, model: ModelOptions, options: UpstreamOptions, upstreams: Mapping[str, Upstream]
) -> UpstreamModel:
    carried = binding_of(options).capability
    # a dialect without model names has one model per server, unless the configuration says otherwise
    unnamed = "" if not carried.model_name else name
    return UpstreamModel(
        name,
        upstreams[model.upstream or ""],
        unnamed if model.remote_model is None else model.remote_model,
        inputs=model.inputs,
        outputs=model.outputs,
        declared=model.signature.build() if model.signature is not None else None,
        description=model.description,
        parameters=model.parameters,
        controlled=options.control == "explicit",
        dropped_fields=DroppedFields(options.dialect, carried, options.strict),
        widened=carried.widened,
        strict_signature=model.strict_signature,
        attributes=Attributes(model.labels, model.format),
    )
