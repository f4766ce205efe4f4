"""tritonclient's four clients drive the daemon through every method that they have."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio

from tests.conformance import oip_checks_control, oip_checks_infer, oip_checks_stream, oip_client
from tests.conformance.oip_checks import CHECKS, Server, client_of
from tests.e2e.oip_golden import golden_daemon
from tests.peers.compatibility import PAGE, read, rows

pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")

CASES = [(name, kind) for name, check in CHECKS.items() for kind in check.kinds]

OFFLINE = {"generate_request_body", "parse_response_body", "plugin", "register_plugin", "unregister_plugin"}
"""Methods that do not speak to a server."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with golden_daemon(tmp_path_factory.mktemp("oip_clients")) as running:
        yield running


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_client_can(server: Server, name: str, kind: str) -> None:
    with client_of(kind, server) as client:
        CHECKS[name].run(client)


@pytest.mark.parametrize("module", ["http", "http.aio", "grpc", "grpc.aio"])
def test_no_method_is_missing(module: str) -> None:
    """Every public method of a client is called somewhere in the checks."""
    of_clients = {
        "http": tritonclient.http,
        "http.aio": tritonclient.http.aio,
        "grpc": tritonclient.grpc,
        "grpc.aio": tritonclient.grpc.aio,
    }
    methods = {
        name
        for name, _ in inspect.getmembers(of_clients[module].InferenceServerClient, inspect.isfunction)
        if not name.startswith("_")
    }
    assert methods - OFFLINE - called() == set()


def test_the_page_has_every_check() -> None:
    """docs/dialects/oip-compatibility.md is of these checks, and says that the daemon passes all."""
    said = read(PAGE.read_text(encoding="utf-8"))
    assert set(said) == set(rows())
    assert all(row["Interlingua"] for row in said.values())


def called() -> set[str]:
    """The names of all attributes of what the checks and their client call ``client`` or ``self``."""
    found: set[str] = set()
    for module in (oip_client, oip_checks_infer, oip_checks_stream, oip_checks_control):
        assert module.__file__ is not None
        for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
    return found
