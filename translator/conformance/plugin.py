"""The kit inside pytest, for suites of other servers; ``test_conformance`` has the tests.

Options define what to test; override the fixture ``conformance_url`` with one that starts the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from interlingua.schemas import Signature
from interlingua.translator.config.signature import read_signature
from interlingua.translator.conformance.kit import Effort, checks_of
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.session import UsageError, server_under_test
from interlingua.translator.conformance.wires import wires


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the kit."""
    group = parser.getgroup("conformance", "conformance of an inference server")
    add = group.addoption
    add("--conformance-dialect", metavar="D", help="the server's dialect, such as oip")
    add("--conformance-transport", metavar="T", help="its transport: http, grpc, brpc or tcp")
    add("--conformance-url", metavar="U", help="host:port, http://host:port/prefix or unix:path")
    add("--conformance-model", metavar="M", action="append", default=[], help="a model; repeatable")
    add("--conformance-signature", metavar="FILE", help="signature of the model (YAML)")
    add("--conformance-examples", metavar="N", type=int, default=25, help="examples for each check")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each check and model."""
    if "conformance_check" in metafunc.fixturenames:
        checks = checks_of(_wire(metafunc.config))
        metafunc.parametrize("conformance_check", checks, ids=[check.name for check in checks])
    if "conformance_model" in metafunc.fixturenames:
        models = metafunc.config.getoption("--conformance-model") or [""]
        metafunc.parametrize("conformance_model", models, scope="session")


@pytest.fixture(scope="session")
def conformance_url(pytestconfig: pytest.Config) -> str:
    """The URL of the server."""
    return str(_option(pytestconfig, "--conformance-url"))


@pytest.fixture(scope="session")
def conformance_server(
    pytestconfig: pytest.Config, conformance_url: str, conformance_model: str
) -> Iterator[ServerUnderTest]:
    """The server with one of its models."""
    dialect, transport = (_option(pytestconfig, f"--conformance-{name}") for name in ("dialect", "transport"))
    with ExitStack() as stack:
        try:
            server = stack.enter_context(
                server_under_test(
                    dialect, transport, conformance_url, conformance_model, signature=_signature(pytestconfig)
                )
            )
        except UsageError as error:
            raise pytest.UsageError(str(error)) from error
        yield server


@pytest.fixture(scope="session")
def conformance_effort(pytestconfig: pytest.Config) -> Effort:
    """The effort of each check."""
    return Effort(examples=pytestconfig.getoption("--conformance-examples"))


def _wire(config: pytest.Config) -> Any:
    dialect, transport = (_option(config, f"--conformance-{name}") for name in ("dialect", "transport"))
    known = wires()
    if (wire := known.get(f"{dialect}/{transport}")) is None:
        names = ", ".join(name.replace("/", " over ") for name in known)
        raise pytest.UsageError(f"no checks for {dialect} over {transport}; there are {names}")
    return wire


def _option(config: pytest.Config, name: str) -> str:
    value: str | None = config.getoption(name)
    if value is None:
        raise pytest.UsageError(f"option {name} is missing")
    return value


def _signature(config: pytest.Config) -> Signature | None:
    path = config.getoption("--conformance-signature")
    try:
        return read_signature(path) if path else None
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
