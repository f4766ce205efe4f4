"""The wires that the kit can judge, by dialect and transport: one line each."""

from __future__ import annotations

from collections.abc import Mapping

from interlingua.translator.conformance import (
    wire_graphpipe,
    wire_grps,
    wire_oip_grpc,
    wire_oip_http,
    wire_trtis,
)
from interlingua.translator.conformance.wire import Wire

WIRES: Mapping[tuple[str, str], Wire] = {
    ("oip", "http"): wire_oip_http.WIRE,
    ("oip", "grpc"): wire_oip_grpc.WIRE,
    ("trtis", "http"): wire_trtis.HTTP,
    ("trtis", "grpc"): wire_trtis.GRPC,
    ("graphpipe", "http"): wire_graphpipe.HTTP,
    ("graphpipe", "tcp"): wire_graphpipe.TCP,
    ("grps", "http"): wire_grps.HTTP,
    ("grps", "grpc"): wire_grps.GRPC,
    ("grps", "brpc"): wire_grps.BRPC,
}
