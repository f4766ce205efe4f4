"""The options of upstreams, in the form of ``options``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from interlingua.protocols.section import Bytes, Seconds, Section, Text
from interlingua.runtime.upstream.members_file import members_path
from interlingua.translator.config.headers import ForwardedName, HeaderOptions, OwnName
from interlingua.translator.config.references import KnownDialect, UpstreamUrl, context_of, require
from interlingua.translator.config.tls import UpstreamTlsOptions
from interlingua.translator.config.values import (
    DECODING,
    LARGEST_MESSAGE,
    Decompressed,
    Elements,
    Engine,
    Ratio,
    Transport,
    distinct,
    known_flavors,
    over_http_or_grpc,
    travels,
)


class UpstreamOptions(Section):
    """Remote servers that run models."""

    planned = frozenset({"max_request_bytes"})

    dialect: KnownDialect
    """The dialect of the servers."""
    transport: Transport
    """The transport of messages to them."""
    urls: Annotated[tuple[UpstreamUrl, ...], Field(min_length=1)]
    """The servers: `host:port`, `http://host:port/prefix`, or `unix:path`; or one `file:path`, a
    [file that lists them](upstreams.md#members-file). All of them serve the same models: each request goes
    to the least loaded one, the requests of a sequence to the same one."""
    flavor: str = "auto"
    """The server whose quirks they have, where servers of one dialect differ. `auto` works with all of
    them."""
    control: Literal["none", "explicit"] = "none"
    """Whether clients may load and unload models there: never, or by explicit request."""
    strict: bool = False
    """Refuse a request with a field that the dialect does not carry (a parameter, a sequence, a priority),
    instead of dropping and counting the field."""
    engine: Engine = "native"
    """Over http and grpc: the implementation of the protocol, this project's own or that of aiohttp and
    grpcio."""
    tls: UpstreamTlsOptions | None = None
    """TLS to all servers. Without this option it is used for `https` URLs. Only with `engine: native`."""
    connect_timeout_secs: Seconds = 5.0
    """The time limit for connecting."""
    request_timeout_secs: Seconds = 60.0
    """The time limit of one request, connecting included; a caller's own deadline may end it sooner."""
    max_response_bytes: Bytes = LARGEST_MESSAGE
    """The largest answer to accept; a stream over HTTP is one answer."""
    max_decompressed_bytes: Decompressed = DECODING.max_decompressed_bytes
    """The maximum size of a compressed answer after decompression."""
    max_compression_ratio: Ratio = DECODING.max_compression_ratio
    """The maximum ratio of that size to the compressed one, for answers above 1 MiB after decompression. Not
    over brpc."""
    max_elements: Elements = DECODING.max_elements
    """The maximum number of elements of an answer that are decoded one by one, as on a listener."""
    probe_interval_secs: Annotated[float, Field(ge=0)] = 5.0
    """The interval between readiness probes of each server that has been used; 0 for none. A failed server
    gets requests again when it answers one."""
    resolve_interval_secs: Seconds = 10.0
    """The interval between DNS lookups of the hosts in `urls`, and between looks at a members file; each
    address of a name is a server."""
    zone: Text | None = None
    """The zone of this daemon: servers of this zone in the members file get all requests while one of them
    works."""
    slow_start_secs: Annotated[float, Field(ge=0)] = 0.0
    """The time in which the share of a server that joins or recovers grows from a tenth to the whole."""
    eject_after_failures: Annotated[int, Field(ge=1)] = 3
    """The number of consecutive failures that eject a server; an unreachable one is ejected at once."""
    max_concurrency: Annotated[int, Field(ge=1)] | None = None
    """The maximum number of concurrent inference requests to all servers together. The default is no
    limit."""
    max_bytes_in_flight: Bytes | None = None
    """The maximum size of these requests together; a larger request is sent alone. The default is no
    limit."""
    max_wait_secs: Annotated[float, Field(ge=0)] = 1.0
    """How long a request above these limits waits before it is refused as overload."""
    forward_headers: tuple[ForwardedName, ...] = ()
    """Headers of callers to forward with their requests. `traceparent`, `tracestate`, `baggage` and
    `x-request-id` are always forwarded. Over grpc they are metadata, over brpc user fields."""
    headers: dict[OwnName, HeaderOptions] = Field(default={})
    """Headers to add to every call and probe, such as `authorization`."""

    @field_validator("transport")
    @classmethod
    def _carried(cls, transport: str, info: ValidationInfo) -> str:
        dialect = info.data.get("dialect")
        if dialect is not None:
            travels(dialect, transport, context_of(info).installation.calls[dialect])
        return transport

    @field_validator("urls")
    @classmethod
    def _distinct(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        if len(urls) > 1 and any(map(members_path, urls)):
            raise ValueError("a members file must be the only entry: list the other servers in it")
        return distinct("URL", urls)

    @field_validator("flavor")
    @classmethod
    def _flavor(cls, flavor: str, info: ValidationInfo) -> str:
        if "dialect" in info.data:
            require("flavor", flavor, ("auto", *dict(known_flavors()).get(info.data["dialect"], ())))
        return flavor

    @field_validator("engine")
    @classmethod
    def _engine(cls, value: str | None, info: ValidationInfo) -> str | None:
        return over_http_or_grpc(value, info)

    @field_validator("tls")
    @classmethod
    def _of_tls(cls, value: UpstreamTlsOptions | None, info: ValidationInfo) -> UpstreamTlsOptions | None:
        if value is None:
            return value
        if info.data.get("engine") == "library":
            raise ValueError("needs engine: native")
        plain = next((url for url in info.data.get("urls", ()) if url.startswith("http://")), None)
        if plain is not None:
            raise ValueError(f"contradicts the URL '{plain}': write https")
        return value

    @field_validator("forward_headers", "headers")
    @classmethod
    def _has_headers(cls, value: Any, info: ValidationInfo) -> Any:
        if value and info.data.get("transport") == "tcp":
            raise ValueError("is for transport http, grpc or brpc: messages over tcp have no headers")
        return value

    @field_validator("headers")
    @classmethod
    def _one_source(cls, headers: dict[str, HeaderOptions], info: ValidationInfo) -> dict[str, HeaderOptions]:
        for name in headers:
            if name in info.data.get("forward_headers", ()):
                raise ValueError(f"'{name}' is also in forward_headers: its value is ambiguous")
        return headers
