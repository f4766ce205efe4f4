"""What the dialect offers as a server: one table of HTTP endpoints, one of gRPC methods.

The forms of requests and answers belong to ``codec_http`` and ``codec_grpc``.
"""

from __future__ import annotations

from protocols.dialect import GrpcEndpoint, HttpEndpoint

HTTP_ENDPOINTS: tuple[HttpEndpoint, ...] = ()

GRPC_ENDPOINTS: tuple[GrpcEndpoint, ...] = ()
