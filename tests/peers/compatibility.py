"""Which checks a server passes, and the page that says so.

The page is written from what the checks found, and read by the tests, which hold every server to it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from tests.conformance.golden_repository import FOLDER, LOADED
from tests.conformance.oip_checks import CHECKS, Server, client_of
from tests.e2e.daemon import ROOT, Daemon
from tests.e2e.oip_golden import golden_daemon
from tests.peers import servers

LABELS = (FOLDER / "cls" / "labels.txt").read_text(encoding="utf-8").split()
PAGE = ROOT / "docs" / "dialects" / "oip-compatibility.md"
KINDS = ("http", "grpc")

DECLARED = {
    "cls": {
        "signature": {
            "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [-1, 4]}],
            "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [-1, 4]}],
            "max_batch_size": 4,
            "labels": {"OUTPUT0": LABELS},
        }
    }
}
"""What a configuration says of models elsewhere: the protocol does not tell the names of classes."""


@contextmanager
def through(server: Server, folder: Path) -> Iterator[Server]:
    """Daemons without a model of their own between clients and ``server``: one that asks it over HTTP
    behind the HTTP listener, one that asks it over gRPC behind the gRPC listener."""
    with ExitStack() as running:
        addresses = {}
        for transport in KINDS:
            place = folder / transport
            place.mkdir()
            config = {
                "listeners": [{"listen": "127.0.0.1:0", "transport": transport, "dialects": ["oip"]}],
                "models": {
                    name: {
                        "upstream": "server",
                        "remote_model": name,
                        "required": name == "simple",
                        **DECLARED.get(name, {}),
                    }
                    for name in (*LOADED, "not_loaded")
                },
                "upstreams": {
                    "server": {
                        "dialect": "oip",
                        "transport": transport,
                        "urls": [getattr(server, transport)],
                        "control": "explicit",
                    }
                },
            }
            daemon = Daemon.start(place, config)
            running.callback(daemon.kill)
            [addresses[transport]] = daemon.addresses
        # the daemon takes binary data whatever the server does
        yield replace(server, **addresses, binary=True, ends_streams=True)


COLUMNS = ("Interlingua", "Triton", "through it to Triton", "MLServer", "through it to MLServer", "KServe",
           "through it to KServe")  # fmt: skip


@contextmanager
def everybody() -> Iterator[dict[str, Server]]:
    """Every server of the page, by column."""
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))

        def place(name: str) -> Path:
            made = folder / name
            made.mkdir()
            return made

        found = {"Interlingua": running.enter_context(golden_daemon(place("own")))}
        peers = {
            "Triton": lambda where: servers.triton(where, LOADED),
            "MLServer": servers.mlserver,
            "KServe": servers.kserve,
        }
        for name, start in peers.items():
            server = running.enter_context(start(place(name)))
            found[name] = server
            bridge = place(f"through_{name}")
            found[f"through it to {name}"] = running.enter_context(through(server, bridge))
        yield found


def why_not(name: str, kind: str, server: Server) -> str:
    """Why ``server`` fails check ``name`` for this kind of client; empty where it passes."""
    try:
        with client_of(kind, server) as client:
            CHECKS[name].run(client)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def rows() -> list[tuple[str, str]]:
    """Every row of the page: a check, and a kind of client that it is for."""
    return [(name, kind) for name, check in CHECKS.items() for kind in KINDS if kind in check.kinds]


_HEAD = """\
# OIP: who does what

Each row is a program that uses tritonclient and checks the answers: once against each server itself, and
once through the daemon to that server as its upstream, by the same transport on both sides. The rows are
`tests/conformance/oip_checks_*.py`; this page is what
`python -m scripts.document_oip_compatibility` found, and `make peers` fails where it is no longer so.

Servers: Triton 2.51 with its Python backend, MLServer 1.7, KServe's Python server 0.21. To MLServer itself
tensors go as JSON over HTTP, since it takes no binary data. The daemon has `control: explicit` for its
upstreams, and the labels of `cls` in the `signature` of that model; a configuration or files do not travel
with a load.

"""


def page(table: dict[tuple[str, str], dict[str, bool]]) -> str:
    """The page in Markdown."""
    lines = [
        "| operation | transport | " + " | ".join(COLUMNS) + " |",
        "|---|---|" + "---|" * len(COLUMNS),
    ]
    for (name, kind), row in table.items():
        cells = ("yes" if row[who] else "no" for who in COLUMNS)
        lines.append(f"| {CHECKS[name].operation} | {kind} | " + " | ".join(cells) + " |")
    return _HEAD + "\n".join(lines) + "\n"


def read(text: str) -> dict[tuple[str, str], dict[str, bool]]:
    """What the page says, for each row and column whether it holds. Raises ``KeyError`` for an unknown row."""
    names = {(CHECKS[name].operation, kind): (name, kind) for name, kind in rows()}
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 2 + len(COLUMNS) and cells[1] in KINDS:
            answers = zip(COLUMNS, (cell == "yes" for cell in cells[2:]), strict=True)
            found[names[cells[0], cells[1]]] = dict(answers)
    return found
