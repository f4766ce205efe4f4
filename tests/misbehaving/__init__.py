"""Upstream servers that misbehave, by transport: a table of names, each with the bytes that are sent and the outcomes
that a caller may see."""

from __future__ import annotations

from tests.misbehaving.brpc import BRPC, BrpcSession
from tests.misbehaving.framed import FRAMED, FramedSession
from tests.misbehaving.http1 import HTTP1, Http1Session
from tests.misbehaving.http2 import HTTP2, Http2Session
from tests.misbehaving.server import Misbehaviour, Session

MISBEHAVING: dict[str, tuple[type[Session], dict[str, Misbehaviour]]] = {
    "http": (Http1Session, HTTP1),
    "grpc": (Http2Session, HTTP2),
    "brpc": (BrpcSession, BRPC),
    "tcp": (FramedSession, FRAMED),
}
