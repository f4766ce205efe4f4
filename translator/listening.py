"""The servers of listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.listener import Listener
from interlingua.protocols.transport.servers import SERVERS, Server, ServerSettings
from interlingua.protocols.transport.tls import ALPN, TlsContext
from interlingua.translator.assembly import Assembly
from interlingua.translator.config.bindings import bindings_of
from interlingua.translator.config.options import ListenerOptions
from interlingua.translator.config.tls import ListenerTlsOptions
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.upstream_assembly import decoding_limits


@dataclass(slots=True, eq=False)
class Listening:
    """The server of a listener with ``options`` at ``place``, bound to ``address`` once it has started."""

    options: ListenerOptions
    place: Listener
    pipeline: Pipeline
    server: Server
    address: Address

    async def start(self) -> None:
        """Raises ``OSError``."""
        self.address = await self.server.start()

    def facts(self) -> dict[str, str]:
        """For the log."""
        dialects = ",".join(self.options.dialects)
        return {"address": str(self.address), "transport": self.options.transport, "dialects": dialects}


def server_of(assembly: Assembly, options: ListenerOptions, place: Address | Listener) -> Server:
    """The server of :func:`listening_of`."""
    return listening_of(assembly, options, place).server


def listening_of(assembly: Assembly, options: ListenerOptions, place: Address | Listener) -> Listening:
    """The listener with ``options`` at ``place``, not started. Make them in the order of the configuration.
    Raises ``OSError`` for files of TLS that are not usable."""
    pipeline = assembly.pipeline(options)
    if not isinstance(place, Listener):
        place = Listener(place)
    place.trusts = pipeline.authorization.trusts if options.proxy_protocol else None
    tls, mixed = tls_of(options.tls, options.transport), options.transport == "any"
    place.tls = None if mixed else tls
    settings = ServerSettings(
        options.max_request_bytes,
        options.max_response_bytes,
        options.max_concurrency,
        options.engine,
        any(binding.te_with_length for binding in bindings_of(assembly.config, options)),
        pipeline.load,
        decoding_limits(options),
        options.timeouts,
        options.http2.build(),
        tls if mixed else None,
        options.tls is None or options.tls.client != "require",
    )
    server = SERVERS[options.transport](pipeline.handlers, place, settings)
    return Listening(options, place, pipeline, server, place.address)


def tls_of(options: ListenerTlsOptions | None, transport: str) -> TlsContext | None:
    """TLS of a listener, or of the admin address, whose transport is http. Raises ``OSError`` for files that
    are not usable."""
    return None if options is None else TlsContext(options.build(ALPN[transport].listener))


async def stopped(servers: Sequence[Server], grace: float, hurry: asyncio.Future[None]) -> int:
    """Stop ``servers`` within ``grace`` seconds, or at ``hurry``. Returns the number of requests cut."""
    ending = asyncio.gather(*(server.stop(grace) for server in servers))
    await asyncio.wait((ending, hurry), return_when=asyncio.FIRST_COMPLETED)
    if ending.done():
        return sum(ending.result())
    # a second stop also ends the first; both may count the same requests
    cut = await asyncio.gather(*(server.stop(0) for server in servers))
    return sum(map(max, cut, await ending))
