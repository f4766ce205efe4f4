"""The program's own options: type, default and meaning of each. ``schema`` adds those of the dialects.

The sentence under an option is its documentation: docs/configuration.md is generated from it. A rule about
several options is a validator of the last one. Rules that need the rest of the file or the installation are
in ``references``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from interlingua.protocols.section import Bytes, Seconds, Section, Text
from interlingua.protocols.transport.h2.hpack import MAX_HEADER_LIST
from interlingua.protocols.transport.h2.options import (
    CONNECTION_WINDOW,
    KEEPALIVE_SECS,
    KEEPALIVE_TIMEOUT_SECS,
    MAX_STREAMS,
    STREAM_WINDOW,
    Http2Options,
)
from interlingua.protocols.transport.timeouts import MIN_BYTES_PER_SEC, STALL_SECS, Timeouts
from interlingua.translator.access.classes import OperationClass
from interlingua.translator.config.admin import AdminOptions
from interlingua.translator.config.auth import AuthOptions
from interlingua.translator.config.callers import PermittedCaller, ProxyAddress
from interlingua.translator.config.cors import CorsOptions
from interlingua.translator.config.headers import HeaderPattern
from interlingua.translator.config.models import ModelOptions, RepositoryOptions
from interlingua.translator.config.peers import PeersOptions
from interlingua.translator.config.ray import RayOptions
from interlingua.translator.config.references import (
    KnownDialect,
    KnownModel,
    ListenAddress,
    context_of,
    require,
)
from interlingua.translator.config.routes import RouteOptions
from interlingua.translator.config.server import ServerOptions
from interlingua.translator.config.tap import TapOptions
from interlingua.translator.config.tls import ListenerTlsOptions
from interlingua.translator.config.tracing import TracingOptions
from interlingua.translator.config.upstreams import UpstreamOptions
from interlingua.translator.config.values import (
    DECODING,
    LARGEST_MESSAGE,
    Decompressed,
    Elements,
    Engine,
    ListenerTransport,
    Ratio,
    carried,
    distinct,
    known_flavors,
    over_http_or_grpc,
    travels,
)

MAX_REQUEST_BYTES = {
    "http": 64 << 20,
    "grpc": LARGEST_MESSAGE,
    "brpc": 64 << 20,
    "tcp": 64 << 20,
    "any": 64 << 20,
}
"""The default request limits: those of Triton and of bRPC over the same transport; else as over http."""


class Http2ListenerOptions(Section):
    """HTTP/2 on a listener."""

    max_concurrent_streams: Annotated[int, Field(ge=1, le=2**31 - 1)] = MAX_STREAMS
    """The maximum number of concurrent requests of a connection."""
    max_header_list_bytes: Annotated[int, Field(ge=4096, le=1 << 18)] = MAX_HEADER_LIST
    """The maximum size of the headers of a request, each counted with 32 bytes more. A request with more is
    refused."""
    initial_stream_window_bytes: Annotated[int, Field(ge=65_535, le=2**31 - 1)] = STREAM_WINDOW
    """The part of a request that a client may send at once. Most requests should fit."""
    initial_connection_window_bytes: Annotated[int, Field(ge=65_535, le=2**31 - 1)] = CONNECTION_WINDOW
    """The part of all requests of a connection that a client may send at once. Larger messages share it."""
    keepalive_secs: Seconds = KEEPALIVE_SECS
    """The time without a byte after which a client with running calls gets a PING."""
    keepalive_timeout_secs: Seconds = KEEPALIVE_TIMEOUT_SECS
    """The time for its answer, before the connection is cut."""

    def build(self) -> Http2Options:
        """What the transport takes."""
        return Http2Options(
            self.max_concurrent_streams,
            self.max_header_list_bytes,
            self.initial_stream_window_bytes,
            self.initial_connection_window_bytes,
            self.keepalive_secs,
            self.keepalive_timeout_secs,
        )


class ListenerOptions(Section):
    """An address that clients connect to."""

    listen: ListenAddress
    """`host:port`, `:port` for every interface, `[::1]:port`, or `unix:path`. Port 0 takes a free one."""
    transport: ListenerTransport
    """The transport of messages. `any` is http, grpc and brpc on one port: the first bytes of a connection
    decide."""
    dialects: tuple[KnownDialect, ...] = Field(default=None, validate_default=True)
    """The dialects to speak. The default is every dialect that the transport carries, except those
    that a listener needs to list."""
    flavors: dict[str, str] = Field(
        default_factory=lambda: {name: first for name, (first, *_) in known_flavors()}
    )
    """The servers whose quirks to follow, by dialect, where servers of one dialect differ."""
    default_model: KnownModel | None = None
    """The model for requests that name none. The default is the `default_model` of the file."""
    allow: dict[OperationClass, tuple[PermittedCaller, ...]] = Field(default={})
    """The callers that may request the operations of each class: `anyone`, `local`, a network such as
    `10.0.0.0/8`, `user:NAME` or `user:*`, or `key:HEADER=FILE`. The default is `[anyone]` for `inference`,
    `metadata`, `health` and `statistics`, and `[local]` for `control`, `shared_memory`, `logging` and
    `server`."""
    trusted_proxies: tuple[ProxyAddress, ...] = ()
    """Proxies in front of the listener that report the addresses of their clients in `X-Forwarded-For`, as
    networks or addresses; `unix` for those that connect over a unix socket. The last address that is not of
    such a proxy is the caller's. Without this option a proxy on this machine makes all its clients look
    local."""
    max_request_bytes: Bytes = Field(default=None, validate_default=True)
    """The largest request to accept. The default is 67108864 (64 MiB) over http, brpc, tcp and any,
    2147483647 over grpc."""
    max_response_bytes: Bytes = LARGEST_MESSAGE
    """The largest answer to send."""
    max_decompressed_bytes: Decompressed = DECODING.max_decompressed_bytes
    """The maximum size of a compressed request after decompression. Over http, brpc and tcp
    `max_request_bytes` applies to it too."""
    max_compression_ratio: Ratio = DECODING.max_compression_ratio
    """The maximum ratio of that size to the compressed one, for requests above 1 MiB after decompression.
    Calls of baidu_std may have any ratio, as with the original."""
    max_elements: Elements = DECODING.max_elements
    """The maximum number of elements of a request that are decoded one by one: numbers and strings in JSON,
    BYTES elements, repeated fields in protobuf. A key, or a value that belongs to no tensor, counts as 256.
    Elements of numeric tensors in binary data do not count."""
    max_concurrency: Annotated[int, Field(ge=1)] | None = None
    """Over brpc and any: the maximum number of concurrent calls; further calls are refused with 2004. The
    default is no limit."""
    engine: Engine = "native"
    """Over http and grpc: the implementation of the protocol, this project's own or that of aiohttp and
    grpcio."""
    proxy_protocol: bool = False
    """Whether connections of `trusted_proxies` begin with a header of the PROXY protocol, version 1 or 2,
    with the address of the client. Connections from other addresses have none. Only with `engine: native`."""
    tls: ListenerTlsOptions | None = None
    """TLS, of every connection; over any of those that begin with it, unless `client` is `require`. Only with
    `engine: native`."""
    cors: CorsOptions | None = None
    """Over http, brpc and any: what pages of other origins may do, in browsers. The default is to have models
    run, without reading the answers."""
    nonfinite_json: Literal["error", "token"] = "error"
    """How to answer in JSON with NaN and infinity: with an error, or with the tokens `NaN`, `Infinity` and
    `-Infinity`, which Triton writes and strict JSON parsers refuse."""
    headers_as_parameters: HeaderPattern | None = None
    """Over http, grpc and any: a regular expression. Headers of inference requests with a match in their
    name, in any case, become parameters of the request, as with Triton's `--http-header-forward-pattern`. The
    default is none."""
    max_connections: Annotated[int, Field(ge=1)] = 50000
    """The maximum number of connections. Further ones are closed at once, and so are those that would take
    the last file descriptors of the process."""
    max_connections_per_address: Annotated[int, Field(ge=1)] | None = None
    """The maximum number of connections from one IP address. The default is no limit. Clients of a proxy have
    one address."""
    max_inflight_requests: Annotated[int, Field(ge=1)] | None = None
    """The maximum number of requests in flight on this listener. The default is the server's."""
    max_inflight_bytes: Bytes | None = None
    """The maximum size of the bodies of these requests together. The default is the server's."""
    idle_timeout_secs: Seconds | None = None
    """The time without a request after which a connection closes. The default is 300, over brpc 1800."""
    header_timeout_secs: Seconds = STALL_SECS
    """The time for the headers of a request to arrive, from their first byte; over grpc, brpc and any also
    for the first bytes of a connection."""
    body_timeout_secs: Seconds = STALL_SECS
    """The time without a byte of a request whose body is arriving, before it is refused."""
    write_timeout_secs: Seconds = STALL_SECS
    """The time without a byte that the client reads of its answer, before the answer is cut."""
    min_bytes_per_sec: Annotated[int, Field(ge=0)] = MIN_BYTES_PER_SEC
    """The minimum rate of a request's body, and of an answer that the client reads, since it began; 0 for
    none. It counts after `body_timeout_secs` and `write_timeout_secs`."""
    http2: Http2ListenerOptions = Field(default_factory=Http2ListenerOptions)
    """Over http, grpc, brpc and any: options of HTTP/2. Over http only with `engine: native`."""

    @property
    def timeouts(self) -> Timeouts:
        """What the transport takes."""
        return Timeouts(
            self.idle_timeout_secs,
            self.header_timeout_secs,
            self.body_timeout_secs,
            self.write_timeout_secs,
            self.min_bytes_per_sec,
        )

    @field_validator("dialects", mode="before")
    @classmethod
    def _all_dialects(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None:
            return value
        installation = context_of(info).installation
        # with an unusable transport any choice will do: the file is refused for that
        transport = info.data.get("transport")
        return tuple(
            name
            for name, transports in installation.serves.items()
            if name not in installation.unlisted
            and (transport is None or transports.intersection(carried(transport)))
        )

    @field_validator("dialects")
    @classmethod
    def _carried(cls, dialects: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for dialect in dialects:
            travels(dialect, info.data.get("transport"), context_of(info).installation.serves[dialect])
        if not dialects:
            raise ValueError("must not be empty")
        return distinct("dialect", dialects)

    @field_validator("flavors")
    @classmethod
    def _flavors(cls, flavors: dict[str, str]) -> dict[str, str]:
        known = dict(known_flavors())
        for dialect, flavor in flavors.items():
            require("dialect with flavors", dialect, known)
            require("flavor", flavor, known[dialect])
        return flavors

    @field_validator("max_request_bytes", mode="before")
    @classmethod
    def _as_the_transport(cls, value: Any, info: ValidationInfo) -> Any:
        return MAX_REQUEST_BYTES[info.data.get("transport", "http")] if value is None else value

    @field_validator("engine", "headers_as_parameters")
    @classmethod
    def _of_the_transport(cls, value: str | None, info: ValidationInfo) -> str | None:
        if info.data.get("transport") == "any" and value != "library":
            return value
        return over_http_or_grpc(value, info)

    @field_validator("proxy_protocol")
    @classmethod
    def _of_proxies(cls, value: bool, info: ValidationInfo) -> bool:
        if value and not info.data.get("trusted_proxies", True):
            raise ValueError("needs trusted_proxies: only their word counts")
        if value and info.data.get("engine") == "library":
            raise ValueError("needs engine: native")
        return value

    @field_validator("tls")
    @classmethod
    def _of_tls(cls, value: ListenerTlsOptions | None, info: ValidationInfo) -> ListenerTlsOptions | None:
        if value is not None and info.data.get("engine") == "library":
            raise ValueError("needs engine: native")
        return value

    @field_validator("cors")
    @classmethod
    def _of_browsers(cls, value: CorsOptions | None, info: ValidationInfo) -> CorsOptions | None:
        transport = info.data.get("transport", "http")
        if value is not None and transport in ("grpc", "tcp"):
            raise ValueError(f"is for transport http, brpc or any, not {transport}")
        return value

    @field_validator("http2")
    @classmethod
    def _over_http2(cls, value: Http2ListenerOptions, info: ValidationInfo) -> Http2ListenerOptions:
        # checked only where the file has it
        transport = info.data.get("transport", "grpc")
        if transport == "tcp":
            raise ValueError("is for transport http, grpc, brpc or any, not tcp")
        if transport == "http" and info.data.get("engine") == "library":
            raise ValueError("needs engine: native")
        return value

    @field_validator("max_concurrency")
    @classmethod
    def _over_brpc(cls, value: int | None, info: ValidationInfo) -> int | None:
        transport = info.data.get("transport", "brpc")
        if value is not None and transport not in ("brpc", "any"):
            raise ValueError(f"is for transport brpc, not {transport}")
        return value


class Config(Section):
    """The whole file."""

    server: ServerOptions = Field(default_factory=ServerOptions)
    """The daemon as a whole."""
    listeners: Annotated[tuple[ListenerOptions, ...], Field(min_length=1)]
    """The addresses that clients connect to."""
    admin: AdminOptions | None = None
    """The address for operators: health, metrics for Prometheus, a dashboard. The default is none."""
    auth: AuthOptions | None = None
    """The credentials of clients. The default is none."""
    model_repository: tuple[RepositoryOptions, ...] = ()
    """Folders of models to serve."""
    default_model: KnownModel | None = None
    """The model for requests that name none, such as GraphPipe's."""
    models: dict[Text, ModelOptions] = Field(default={})
    """Models by the name that clients use. They take precedence over models of the same name in a
    repository."""
    upstreams: dict[Text, UpstreamOptions] = Field(default={})
    """Remote servers, by a name of your choice."""
    routes: tuple[RouteOptions, ...] = ()
    """Rules that send requests to another model than they name."""
    tap: TapOptions | None = None
    """A recording of requests and their answers. The default is none."""
    tracing: TracingOptions | None = None
    """Traces for OpenTelemetry. The default is none."""
    include: tuple[Text, ...] = ()
    """Further files of the configuration; a relative path starts at the folder of the including file. Lists
    append, mappings merge, and any other key may be in one file only."""
    peers: PeersOptions | None = None
    """The daemons that share sequences with this one. The default is none."""
    ray: RayOptions | None = None
    """The cluster of the models with `backend: ray`. The default is a local one."""
