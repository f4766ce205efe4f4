"""The wires of the Open Inference Protocol."""

from __future__ import annotations

from interlingua.translator.conformance.wires import oip_grpc, oip_http

WIRES = {"http": oip_http.WIRE, "grpc": oip_grpc.WIRE}
