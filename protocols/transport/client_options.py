"""What the clients of every transport and engine can be made with."""

from __future__ import annotations

from dataclasses import dataclass

from interlingua.protocols.transport.tls import TlsContext
from interlingua.schemas.offload import DEFAULT_LIMITS, DecodingLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """The options of one client; each transport has its own use for them.

    ``connect_timeout_secs``: how long a connection may take to open, TLS included.
    ``max_response_bytes``: the largest response, decompressed; ``None`` is the limit of the transport.
    ``limits``: of what a compressed response may become; framed messages have no compression.
    ``at``: the numeric address of the host, if it is known.
    ``tls``: the context of each handshake; libraries have their own.
    """

    connect_timeout_secs: float = 5.0
    max_response_bytes: int | None = None
    limits: DecodingLimits = DEFAULT_LIMITS
    at: str = ""
    tls: TlsContext | None = None


DEFAULT_OPTIONS = ClientOptions()
