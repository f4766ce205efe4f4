"""The server of a listener."""

from __future__ import annotations

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.listener import Listener
from interlingua.protocols.transport.servers import SERVERS, Server, ServerSettings
from interlingua.translator.assembly import Assembly, decoding_limits
from interlingua.translator.config.bindings import bindings_of
from interlingua.translator.config.options import ListenerOptions


def server_of(assembly: Assembly, options: ListenerOptions, place: Address | Listener) -> Server:
    """The server of the listener ``options`` at ``place``. Make them in the order of the configuration."""
    pipeline = assembly.pipeline(options)
    settings = ServerSettings(
        options.max_request_bytes,
        options.max_response_bytes,
        options.max_concurrency,
        options.engine,
        any(binding.te_with_length for binding in bindings_of(assembly.config, options)),
        pipeline.authorization.trusts if options.proxy_protocol else None,
        pipeline.load,
        decoding_limits(options),
        options.timeouts,
        options.http2.build(),
    )
    return SERVERS[options.transport](pipeline.handlers, place, settings)
