"""A whole test of a server: which models, found how, with which checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from interlingua.schemas import ErrorCode, InferenceError, Operation, ServerMetadata, Signature
from interlingua.translator.config.bindings import binding_of
from interlingua.translator.config.document import ConfigError
from interlingua.translator.config.signature import read_signature
from interlingua.translator.conformance.check import InapplicableError
from interlingua.translator.conformance.discovery import discover, models_of
from interlingua.translator.conformance.kit import Effort, Outcome, checks_of, run_all
from interlingua.translator.conformance.report import Tested
from interlingua.translator.conformance.subject import Subject
from interlingua.translator.conformance.wires import wire_of


class UsageError(Exception):
    """The test cannot be what was asked for; the text says why."""


@contextmanager
def subject_of(
    dialect: str,
    transport: str,
    url: str,
    model: str = "",
    *,
    signature: Signature | None = None,
    timeout_secs: float = 10.0,
    found: bool = True,
) -> Iterator[Subject]:
    """A server and a model of it, with what can be found out; not ``found``, with nothing but its address.

    Raises ``UsageError``.
    """
    try:
        binding = binding_of(dialect, transport)
        if (wire := wire_of(binding)) is None:
            raise UsageError(f"no checks for {dialect} over {transport}")
        subject = Subject(binding, url, wire, model, timeout_secs=timeout_secs)
    except ValueError as error:
        raise UsageError(str(error)) from error
    with subject:
        if found:
            discover(subject, signature)
        yield subject


@contextmanager
def server_of(dialect: str, transport: str, url: str, timeout_secs: float = 10.0) -> Iterator[Subject]:
    """The server alone. Raises as :func:`subject_of`."""
    with subject_of(dialect, transport, url, timeout_secs=timeout_secs, found=False) as subject:
        yield subject


def examine(
    dialect: str,
    transport: str,
    url: str,
    models: Sequence[str] = (),
    signature: Path | None = None,
    effort: Effort | None = None,
    timeout_secs: float = 10.0,
    only: str = "",
) -> tuple[Tested, Iterator[Outcome]]:
    """What is tested, and the outcomes as they come; ``only`` checks with that in their name.

    Raises ``UsageError`` for arguments that make no sense, ``InferenceError`` where the server cannot be
    reached.
    """
    given = _signature(signature)
    with server_of(dialect, transport, url, timeout_secs) as server:
        name = _name(server)
        names = tuple(models) or _models(server)
        checks = [check for check in checks_of(server.wire) if only in check.name]
    if not checks:
        raise UsageError(f"no check has '{only}' in its name")
    if given is not None and len(names) > 1:
        raise UsageError("a signature is that of one model: give one --model")

    def outcomes() -> Iterator[Outcome]:
        for model in names:
            with subject_of(
                dialect, transport, url, model, signature=given, timeout_secs=timeout_secs
            ) as subject:
                yield from run_all(subject, checks, effort or Effort())

    return Tested(name, dialect, transport), outcomes()


def _signature(path: Path | None) -> Signature | None:
    if path is None:
        return None
    try:
        return read_signature(path)
    except (ConfigError, ValueError) as error:
        raise UsageError(str(error)) from error


def _name(server: Subject) -> str:
    """The server as it calls itself. Raises ``InferenceError`` where it cannot be reached."""
    try:
        exchange = server.call(Operation.SERVER_METADATA)
    except InapplicableError:
        exchange = server.call(Operation.READY)
    error = exchange.error
    if exchange.reply is None and error is not None and error.code is not ErrorCode.UNSUPPORTED:
        raise InferenceError(ErrorCode.UNAVAILABLE, error.message)
    said = exchange.result
    if not isinstance(said, ServerMetadata):
        return "a server"
    return f"{said.name} {said.version}".strip()


def _models(server: Subject) -> tuple[str, ...]:
    """The models that the server lists; the one without a name where the dialect has no names."""
    if not server.capability.model_name:
        return ("",)
    try:
        names = models_of(server)
    except InferenceError as error:
        raise UsageError(f"the server does not list its models ({error.message}): give --model") from error
    if not names:
        raise UsageError("the server does not list its models: give --model")
    return names
