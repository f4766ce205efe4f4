"""The kit inside pytest, for suites of other servers; ``test_conformance`` has the tests.

Options say what to test; the fixture ``conformance_url`` may be overridden by one that starts the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from interlingua.schemas import Signature
from interlingua.translator.config.document import ConfigError
from interlingua.translator.config.signature import read_signature
from interlingua.translator.conformance.kit import Effort, checks_of
from interlingua.translator.conformance.session import UsageError, subject_of
from interlingua.translator.conformance.subject import Subject
from interlingua.translator.conformance.wires import wires


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the kit."""
    group = parser.getgroup("conformance", "conformance of an inference server")
    add = group.addoption
    add("--conformance-dialect", metavar="D", help="what the server speaks, such as oip")
    add("--conformance-transport", metavar="T", help="how: http, grpc, brpc or tcp")
    add("--conformance-url", metavar="U", help="host:port, http://host:port/prefix or unix:path")
    add("--conformance-model", metavar="M", action="append", default=[], help="a model, as often as you like")
    add("--conformance-signature", metavar="FILE", help="what the model takes and gives (YAML)")
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
    """Where the server is."""
    return str(_option(pytestconfig, "--conformance-url"))


@pytest.fixture(scope="session")
def conformance_subject(
    pytestconfig: pytest.Config, conformance_url: str, conformance_model: str
) -> Iterator[Subject]:
    """The server with one of its models."""
    dialect, transport = (_option(pytestconfig, f"--conformance-{name}") for name in ("dialect", "transport"))
    with ExitStack() as stack:
        try:
            subject = stack.enter_context(
                subject_of(
                    dialect, transport, conformance_url, conformance_model, signature=_signature(pytestconfig)
                )
            )
        except UsageError as error:
            raise pytest.UsageError(str(error)) from error
        yield subject


@pytest.fixture(scope="session")
def conformance_effort(pytestconfig: pytest.Config) -> Effort:
    """How hard to look."""
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
        raise pytest.UsageError(f"say {name}")
    return value


def _signature(config: pytest.Config) -> Signature | None:
    path = config.getoption("--conformance-signature")
    if not path:
        return None
    try:
        return read_signature(Path(path))
    except (OSError, ValueError, ConfigError) as error:
        raise pytest.UsageError(str(error)) from error
