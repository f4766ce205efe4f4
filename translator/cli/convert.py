"""FILE is a message from the wire (an HTTP message with or without its header section, a gRPC message, a
frame of baidu_std or of tcp) or a recording, of which --record selects a record. Writes the message to stdout
and the verdict to stderr; with -o, the message to a file and the verdict to stdout."""

from __future__ import annotations

import argparse
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlingua.translator.cli.arguments import RefusedError, count, positive, read_headers

if TYPE_CHECKING:
    from interlingua.protocols.dialect import Binding
    from interlingua.schemas import InferenceError, InferRequest, InferResponse, Signature
    from interlingua.translator.conversion.convert import Conversion

HELP = "convert a request or an answer to another dialect"

_FORMS = ("message", "body", "hex", "curl")

_PORTS = {"http": 8000, "grpc": 8001, "brpc": 8010, "tcp": 8011}
"""The local ports in shell commands."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", metavar="FILE", help="the message, or a recording")
    add("--from", dest="source", metavar="D/T", help="dialect and transport of FILE, such as oip/http")
    add("--to", required=True, metavar="D/T", help="dialect and transport of the result")
    add("--answer", action="store_true", help="convert an answer, not a request")
    add("--request", metavar="FILE", help="the request of the answer, if converting it needs that")
    add("--record", type=count, default=1, metavar="N", help="number of the record (default: 1)")
    add("--model", default="", metavar="M", help="the model, if the message does not name it")
    add(
        "--header",
        action="append",
        default=[],
        metavar="'K: V'",
        help="a header of a message without header section",
    )
    add("--path", default="", metavar="P", help="path of a message without header section")
    known = parser.add_mutually_exclusive_group()
    known.add_argument(
        "--signature", metavar="FILE", help="signature of the model (YAML), if the conversion needs it"
    )
    known.add_argument("--url", metavar="U", help="a server with the signature, in the dialect of --from")
    add("--form", choices=_FORMS, default="message", help="form of the result (default: message)")
    add("-o", "--output", metavar="FILE", help="write the result to FILE (default: stdout)")
    add("--strict", action="store_true", help="exit with 1 if anything is widened or lost")
    add("--json", action="store_true", help="print the verdict as one line of JSON")
    add("--timeout-secs", type=positive, default=10.0, metavar="S", help="for --url (default: 10)")


def run(arguments: argparse.Namespace) -> int:
    """Convert, and print the verdict. Returns 1 if the dialect cannot carry the message, or, with --strict,
    all of it."""
    from interlingua.schemas import InferenceError
    from interlingua.translator.config.bindings import binding_named
    from interlingua.translator.recording.files import RecordingError

    try:
        to = binding_named(arguments.to)
        converted = _convert(arguments, to)
        message = b"" if converted.message is None else _written(converted, arguments.form, to)
        if message and arguments.output:
            Path(arguments.output).write_bytes(message)
    except (RecordingError, ValueError) as error:
        raise RefusedError(str(error)) from error
    except InferenceError as error:
        sys.stderr.write(f"message unreadable: {error.code.name}: {error.message}\n")
        return 1
    if message and not arguments.output:
        sys.stdout.buffer.write(message)
        sys.stdout.flush()
    report = sys.stdout if arguments.output else sys.stderr
    report.write(_as_json(converted) if arguments.json else _as_text(converted))
    bad = converted.message is None or (
        arguments.strict and any(finding.verdict.outcome.loses for finding in converted.findings)
    )
    return 1 if bad else 0


def _convert(arguments: argparse.Namespace, to: Binding) -> Conversion:
    from interlingua.translator.config.bindings import binding_named
    from interlingua.translator.conversion.convert import convert_answer, convert_request

    data = Path(arguments.file).read_bytes()
    source = binding_named(arguments.source) if arguments.source else None
    request: InferRequest | None
    signature: Signature | None
    response: InferResponse | InferenceError | None
    batch_known = True
    if data.startswith(b"interlingua-recording "):
        recorded, response, seen, batch_known = _recorded(arguments)
        given = _signature(arguments, source, recorded.model)
        request, signature, batch_known = recorded, given or seen, batch_known or given is not None
    elif source is None:
        raise ValueError("--from is missing: the file is not a recording")
    else:
        signature = _signature(arguments, source, arguments.model)
        request, response = _read(arguments, source, data, signature)
    if arguments.answer:
        assert response is not None, "an answer was read"  # noqa: S101
        return convert_answer(response, to, request, signature, batch_known=batch_known)
    assert request is not None, "a request was read"  # noqa: S101
    return convert_request(request, to, signature, batch_known=batch_known)


def _read(
    arguments: argparse.Namespace, source: Binding, data: bytes, signature: Signature | None
) -> tuple[InferRequest | None, InferResponse | InferenceError | None]:
    from interlingua.translator.conversion.convert import read_answer, read_request

    headers = read_headers(arguments.header)
    model = arguments.model
    if not arguments.answer:
        return read_request(source, data, signature, model=model, headers=headers, path=arguments.path), None
    request = None
    if arguments.request:
        sent = Path(arguments.request).read_bytes()
        request = read_request(source, sent, signature, model=model, path=arguments.path)
    return request, read_answer(source, data, request, signature, model=model, headers=headers)


def _recorded(
    arguments: argparse.Namespace,
) -> tuple[InferRequest, InferResponse | InferenceError, Signature, bool]:
    """The request, its answer, the signature inferred from both, and whether the batch size is known."""
    from interlingua.translator.recording.files import RecordingReader
    from interlingua.translator.recording.unknown import seen_signature

    with RecordingReader(Path(arguments.file)) as records:
        record = next(islice(records, arguments.record - 1, None), None)
    if record is None:
        raise RefusedError(records.damage or f"{arguments.file} has no record {arguments.record}")
    part = "answer" if arguments.answer else "request"
    hidden = [place for place in record.redacted if place[0] == part]
    if hidden:
        raise RefusedError(f"tensors of the {part} were redacted")
    answers = record.answer.responses
    if arguments.answer and not answers and record.answer.error is None:
        raise RefusedError("the request was not answered")
    response = answers[0] if answers else record.answer.error
    assert response is not None  # noqa: S101
    return record.request, response, seen_signature(record), record.max_batch_size is not None


def _signature(arguments: argparse.Namespace, source: Binding | None, model: str) -> Signature | None:
    from interlingua.protocols.transport import loop
    from interlingua.translator.cli.values import signature_in

    if arguments.url is None:
        return signature_in(arguments.signature)
    if source is None:
        raise RefusedError("--url needs --from: the dialect of the server")
    if not model and source.capability.model_name:
        raise RefusedError("--url needs --model: the model with the signature")
    return loop.run(_fetched_signature(arguments, source, model))


async def _fetched_signature(arguments: argparse.Namespace, source: Binding, model: str) -> Signature:
    from interlingua.runtime.upstream.model import UpstreamModel
    from interlingua.translator.cli.exchange import upstream_of

    upstream = upstream_of(source.dialect, source.transport, arguments.url, arguments.timeout_secs)
    try:
        return await UpstreamModel(model, upstream, model).signature()
    finally:
        await upstream.close()


def _written(converted: Conversion, form: str, to: Binding) -> bytes:
    from interlingua.protocols.wire import BrpcRequest, FramedCall, GrpcRequest, HttpCall
    from interlingua.translator.conformance.exchange import shown_request
    from interlingua.translator.conversion.raw import FORMS

    message, raw_form = converted.message, FORMS[to.transport]
    assert message is not None, "it was converted"  # noqa: S101
    if form == "curl":
        if not isinstance(message, HttpCall | GrpcRequest | BrpcRequest | FramedCall):
            raise RefusedError("--form curl is for requests")
        if len(raw_form.body(message)) > 2048:
            raise RefusedError("the message is too long for a command: write it with --form body -o FILE")
        place = f"localhost:{_PORTS[to.transport]}"
        return f"{shown_request(to.transport, message, place)}\n".encode()
    if form == "hex":
        return f"{raw_form.write(message).hex()}\n".encode()
    return raw_form.body(message) if form == "body" else raw_form.write(message)


def _as_text(converted: Conversion) -> str:
    lines = [converted.outcome.value, *(f"  {finding}" for finding in converted.findings)]
    return "".join(f"{line}\n" for line in lines)


def _as_json(converted: Conversion) -> str:
    import orjson

    findings: list[dict[str, Any]] = [
        {
            "what": finding.what,
            "outcome": finding.verdict.outcome.value,
            "datatype": finding.verdict.datatype and finding.verdict.datatype.value,
            "code": finding.verdict.code and finding.verdict.code.name,
            "note": finding.verdict.note,
        }
        for finding in converted.findings
    ]
    document = {"outcome": converted.outcome.value, "findings": findings}
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE).decode()
