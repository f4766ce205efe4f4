"""Sends one request at a time unless --rate, --speed or --concurrency is given. Compares outputs with the
recorded ones: integers and BYTES exactly, floats within ATOL + RTOL * |recorded|."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from interlingua.translator.cli.arguments import RefusedError, add_server, count, not_negative, positive

if TYPE_CHECKING:
    from interlingua.translator.recording.replay import Destination
    from interlingua.translator.recording.replay_report import ReplayReport

HELP = "send recorded requests to a server and compare the answers"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="a recording of a tap or a mirror")
    add_server(parser)
    add("--model", metavar="M", help="the server's model (default: as recorded)")
    add(
        "--map",
        action="append",
        default=[],
        metavar="A=B",
        dest="models",
        help="the server's name for model A is B; repeatable",
    )
    add(
        "--signature",
        metavar="FILE",
        help="signature of the model (YAML), if the server has none or a wrong one",
    )
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument(
        "--rate", type=positive, metavar="R", help="requests per second, whatever the server does"
    )
    pace.add_argument(
        "--speed", type=positive, metavar="X", help="X times the recorded pace, whatever the server does"
    )
    pace.add_argument("--concurrency", type=count, metavar="N", help="requests in flight (default: 1)")
    add("--rtol", type=not_negative, default=1e-5, metavar="RTOL", help="relative tolerance of floats")
    add("--atol", type=not_negative, default=1e-8, metavar="ATOL", help="absolute tolerance of floats")
    add("--limit", type=count, metavar="N", help="maximum number of requests")
    add(
        "--generate-redacted",
        action="store_true",
        help="generate redacted inputs instead of refusing their requests",
    )
    add("--timeout-secs", type=positive, default=60.0, metavar="S", help="for each request (default: 60)")
    add("--json", action="store_true", help="print the report as one line of JSON")


def run(arguments: argparse.Namespace) -> int:
    """Replay, print the report. Returns 1 unless every request was read, sent and answered as recorded."""
    import orjson

    from interlingua.protocols.transport import loop
    from interlingua.translator.diff import Tolerance
    from interlingua.translator.progress import StatusLine
    from interlingua.translator.recording.files import RecordingError, RecordingReader
    from interlingua.translator.recording.pace import Pace
    from interlingua.translator.recording.replay import replay

    timed = arguments.rate is not None or arguments.speed is not None
    pace = Pace(arguments.rate, arguments.speed, None if timed else arguments.concurrency or 1)
    destination = _destination(arguments)

    try:
        with ExitStack() as opened, StatusLine(sys.stderr) as line:
            readers = [opened.enter_context(RecordingReader(Path(name))) for name in arguments.files]
            report = loop.run(
                replay(
                    chain.from_iterable(readers),
                    destination,
                    pace,
                    tolerance=Tolerance(arguments.rtol, arguments.atol),
                    generate_redacted=arguments.generate_redacted,
                    timeout_secs=arguments.timeout_secs,
                    limit=arguments.limit,
                    progress=(lambda report: line.show_often(_state(report))) if line.is_shown else None,
                )
            )
    except RecordingError as error:
        raise RefusedError(str(error)) from error
    for damage in (reader.damage for reader in readers if reader.damage):
        sys.stderr.write(f"interlingua replay: {damage}\n")
    if arguments.json:
        sys.stdout.write(orjson.dumps(report.as_json(), option=orjson.OPT_APPEND_NEWLINE).decode())
    else:
        sys.stdout.writelines(f"{line}\n" for line in report.as_text())
    return 0 if report.good and not any(reader.lost for reader in readers) else 1


def _state(report: ReplayReport) -> str:
    return f"{report.sent} sent: {report.equal} equal, {report.different} different, {report.failed} failed"


def _destination(arguments: argparse.Namespace) -> Destination:
    from interlingua.protocols.registry import DIALECTS
    from interlingua.translator.cli.exchange import upstream_of
    from interlingua.translator.cli.values import signature_in
    from interlingua.translator.recording.replay import Destination

    reach = partial(
        upstream_of, arguments.dialect, arguments.transport, arguments.url, arguments.timeout_secs
    )
    reach()  # raises errors of the arguments before anything is sent
    models = dict(entry.partition("=")[::2] for entry in arguments.models)
    for entry in arguments.models:
        if "=" not in entry:
            raise RefusedError(f"--map {entry}: write RECORDED=THERE")
    return Destination(
        reach,
        DIALECTS[arguments.dialect].bindings[arguments.transport].capability,
        models,
        arguments.model,
        signature_in(arguments.signature),
        # other transports use one connection for all requests
        own_connections=arguments.transport in ("http", "tcp"),
    )
