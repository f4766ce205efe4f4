"""What the dialect asks of an upstream: one table of HTTP calls, one of gRPC calls.

The forms of calls and replies belong to ``codec_http`` and ``codec_grpc``.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocols.dialect import UpstreamCall
from protocols.wire import GrpcAnswer, GrpcRequest, HttpReply, HttpRequest
from schemas import Operation

HTTP_CALLS: Mapping[Operation, UpstreamCall[HttpRequest, HttpReply]] = {}

GRPC_CALLS: Mapping[Operation, UpstreamCall[GrpcRequest, GrpcAnswer]] = {}
