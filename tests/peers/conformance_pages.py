"""What the conformance kit finds at the servers of other projects, as the pages of docs/conformance.

``python -m tests.peers.conformance_pages [SERVER ...]`` writes them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from interlingua.translator.conformance.kit import CheckResult, Effort
from interlingua.translator.conformance.report import Tested, as_markdown
from interlingua.translator.conformance.session import examine
from tests.conformance.oip_client import Server
from tests.e2e.daemon import ROOT
from tests.peers import servers

PAGES = ROOT / "docs" / "conformance"
PLAIN = ("simple", "identity_int64", "identity_uint8", "identity_fp32", "identity_bytes")
MODELS = {
    # sums of a sequence, two sequences at a time, several answers
    "triton": (*PLAIN, "seq", "simple_sequence", "repeat"),
    "mlserver": PLAIN,
    "kserve": PLAIN,
}
STARTS = {
    "triton": lambda folder: servers.triton(folder, MODELS["triton"]),
    "mlserver": servers.mlserver,
    "kserve": servers.kserve,
}
EFFORT = Effort(examples=25, secs=15)


def examined(name: str, server: Server) -> list[tuple[Tested, list[CheckResult]]]:
    """What the kit finds over HTTP and over gRPC."""
    found = []
    for transport in ("http", "grpc"):
        tested, results = examine("oip", transport, getattr(server, transport), MODELS[name], effort=EFFORT)
        found.append((tested, list(results)))
    return found


def page(name: str, server: Server) -> bytes:
    """The page of a server. Addresses are those of its documentation, so that the page stays the same."""
    text = as_markdown(examined(name, server))
    return text.replace(server.http.encode(), b"localhost:8000").replace(
        server.grpc.encode(), b"localhost:8001"
    )


def main(names: list[str]) -> None:
    PAGES.mkdir(exist_ok=True)
    for name in names or STARTS:
        with tempfile.TemporaryDirectory() as folder, STARTS[name](Path(folder)) as server:
            (PAGES / f"{name}.md").write_bytes(page(name, server))


if __name__ == "__main__":
    main(sys.argv[1:])
