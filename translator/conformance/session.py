"""A whole test of a server: its models, their signatures, the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from interlingua.schemas import ErrorCode, InferenceError, Operation, ServerMetadata, Signature
from interlingua.translator.config.bindings import binding_of
from interlingua.translator.config.signature import read_signature
from interlingua.translator.conformance.check import Check
from interlingua.translator.conformance.discovery import discover, models_of
from interlingua.translator.conformance.errors import InapplicableError
from interlingua.translator.conformance.kit import CheckResult, Effort, checks_of, run_all
from interlingua.translator.conformance.report import Tested
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.wires import wire_of


class UsageError(Exception):
    """Invalid arguments; the message says why."""


@contextmanager
def server_under_test(
    dialect: str,
    transport: str,
    url: str,
    model: str = "",
    *,
    signature: Signature | None = None,
    timeout_secs: float = 10.0,
    found: bool = True,
) -> Iterator[ServerUnderTest]:
    """A server with a model, its discovered properties if ``found``. Raises ``UsageError``."""
    try:
        binding = binding_of(dialect, transport)
        if (wire := wire_of(binding)) is None:
            raise UsageError(f"no checks for {dialect} over {transport}")
        server = ServerUnderTest(binding, url, wire, model, timeout_secs=timeout_secs)
    except ValueError as error:
        raise UsageError(str(error)) from error
    with server:
        if found:
            discover(server, signature)
        yield server


def examine(
    dialect: str,
    transport: str,
    url: str,
    models: Sequence[str] = (),
    signature: str | Path | None = None,
    effort: Effort | None = None,
    timeout_secs: float = 10.0,
    only: str = "",
    begins: Callable[[str, Check], None] | None = None,
) -> tuple[Tested, Iterator[CheckResult]]:
    """What is tested, and the results as they arrive; ``only`` runs checks whose name contains it. ``begins``
    is called with each model and check before it runs. Raises
    ``UsageError`` for invalid arguments, ``InferenceError`` if the server is unreachable."""
    try:
        declared = None if signature is None else read_signature(signature)
    except ValueError as error:
        raise UsageError(str(error)) from error
    with server_under_test(dialect, transport, url, timeout_secs=timeout_secs, found=False) as bare:
        name = _name(bare)
        names = tuple(models) or _models(bare)
        checks = [check for check in checks_of(bare.wire) if only in check.name]
    if not checks:
        raise UsageError(f"no check has '{only}' in its name")
    if declared is not None and len(names) > 1:
        raise UsageError("a signature belongs to one model: give one --model")

    def results() -> Iterator[CheckResult]:
        for model in names:
            with server_under_test(
                dialect, transport, url, model, signature=declared, timeout_secs=timeout_secs
            ) as server:
                yield from run_all(server, _announced(model, checks, begins), effort or Effort())

    return Tested(name, dialect, transport), results()


def _announced(
    model: str, checks: Sequence[Check], begins: Callable[[str, Check], None] | None
) -> Iterator[Check]:
    for check in checks:
        if begins is not None:
            begins(model, check)
        yield check


def _name(server: ServerUnderTest) -> str:
    """The server's own name and version. Raises ``InferenceError`` if it is unreachable."""
    try:
        exchange = server.call(Operation.SERVER_METADATA)
    except InapplicableError:
        exchange = server.call(Operation.READY)
    error = exchange.error
    if exchange.reply is None and error is not None and error.code is not ErrorCode.UNSUPPORTED:
        raise InferenceError(ErrorCode.UNAVAILABLE, error.message)
    metadata = exchange.result
    if not isinstance(metadata, ServerMetadata):
        return "a server"
    return f"{metadata.name} {metadata.version}".strip()


def _models(server: ServerUnderTest) -> tuple[str, ...]:
    """The models that the server lists; the unnamed one if the dialect has no model names."""
    if not server.capability.model_name:
        return ("",)
    try:
        names = models_of(server)
    except InferenceError as error:
        raise UsageError(f"the server does not list its models ({error.message}): give --model") from error
    if not names:
        raise UsageError("the server does not list its models: give --model")
    return names
