"""Every check of the Open Inference Protocol, in the order of the documentation."""

from __future__ import annotations

import importlib

from tests.conformance.oip_client import CHECKS, EVERY, GRPC, HTTP, Check, Client, Server, client_of

# each module fills the table; the checks that leave a mark on a server come last
for _name in ("infer", "stream", "control"):
    importlib.import_module(f"tests.conformance.oip_checks_{_name}")

__all__ = ["CHECKS", "EVERY", "GRPC", "HTTP", "Check", "Client", "Server", "client_of"]
