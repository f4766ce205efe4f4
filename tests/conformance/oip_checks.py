"""Every check of the Open Inference Protocol, in the order of the documentation."""

from __future__ import annotations

# each module fills the table; those that leave a mark on a server come last
from tests.conformance import oip_checks_control, oip_checks_infer, oip_checks_stream  # noqa: F401
from tests.conformance.oip_client import CHECKS, EVERY, GRPC, HTTP, Check, Client, Server, client_of

__all__ = ["CHECKS", "EVERY", "GRPC", "HTTP", "Check", "Client", "Server", "client_of"]
