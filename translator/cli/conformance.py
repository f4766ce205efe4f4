"""Searches for requests that break a rule and prints the smallest one as a shell command. Tests every model
that the server lists unless --model is given. Needs the extra `conformance`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from interlingua.translator.cli.arguments import RefusedError, add_server, count, positive
from interlingua.translator.cli.colours import Colour, painted

if TYPE_CHECKING:
    from interlingua.translator.conformance.kit import CheckResult
    from interlingua.translator.conformance.report import Tested

HELP = "test whether any server conforms to its dialect"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_server(parser)
    add("--model", action="append", metavar="M", dest="models", help="a model; repeatable")
    add(
        "--signature",
        metavar="FILE",
        help="signature of the model (YAML), if the server has none",
    )
    add("--only", metavar="TEXT", default="", help="only checks whose name contains TEXT")
    add("--examples", type=count, default=25, metavar="N", help="examples for each check (default: 25)")
    add("--secs", type=positive, default=20.0, metavar="S", help="limit for each check (default: 20)")
    add("--seed", type=int, default=0, metavar="N", help="seed of the examples (default: 0)")
    add("--timeout-secs", type=positive, default=10.0, metavar="S", help="for each request (default: 10)")
    add("--junit", metavar="FILE", help="write JUnit XML")
    add("--json", action="store_true", help="print the results as one line of JSON")
    add("--markdown", metavar="FILE", help="write a Markdown page")


def run(arguments: argparse.Namespace) -> int:
    """Run the checks and print the results. Returns 1 if a rule is broken."""
    try:
        import hypothesis  # noqa: F401
    except ImportError:
        raise RefusedError("install the extra: pip install 'interlingua[conformance]'") from None
    from interlingua.translator.conformance.report import as_junit, as_markdown
    from interlingua.translator.conformance.session import UsageError

    try:
        tested, results = _results(arguments)
        for name, write in (("junit", as_junit), ("markdown", as_markdown)):
            if getattr(arguments, name):
                Path(getattr(arguments, name)).write_bytes(write([(tested, results)]))
    except UsageError as error:
        raise RefusedError(str(error)) from error
    (_print_json if arguments.json else _print_end)(tested, results)
    return 1 if any(result.status.bad for result in results) else 0


def _results(arguments: argparse.Namespace) -> tuple[Tested, list[CheckResult]]:
    """What is tested, and every result, which it prints unless the output is JSON."""
    from interlingua.translator.conformance.kit import Effort
    from interlingua.translator.conformance.session import examine
    from interlingua.translator.progress import StatusLine

    results: list[CheckResult] = []
    with StatusLine(sys.stderr) as line:
        tested, running = examine(
            arguments.dialect,
            arguments.transport,
            arguments.url,
            arguments.models or (),
            arguments.signature or None,
            Effort(arguments.examples, arguments.secs, arguments.seed),
            arguments.timeout_secs,
            arguments.only,
            lambda model, check: line.show(f"{len(results)} done, now {model} {check.name}"),
        )
        for result in running:
            results.append(result)
            line.clear()
            if not arguments.json:
                sys.stdout.write(f"{_painted(result)}\n")
                sys.stdout.flush()
    return tested, results


def _painted(result: CheckResult) -> str:
    from interlingua.translator.conformance.kit import CheckStatus
    from interlingua.translator.conformance.report import as_line

    word, rest = as_line(result)[:4], as_line(result)[4:]
    colour: Colour = "red" if result.status.bad else "green"
    return f"{painted(word, 'dim' if result.status is CheckStatus.SKIPPED else colour, sys.stdout)}{rest}"


def _print_end(_: Tested, results: list[CheckResult]) -> None:
    from interlingua.translator.conformance.report import as_details, summary

    for result in results:
        if result.status.bad:
            sys.stdout.write(f"\n{as_details(result)}\n")
    sys.stdout.write(f"\n{summary(results)}\n")


def _print_json(tested: Tested, results: list[CheckResult]) -> None:
    import orjson

    from interlingua.translator.conformance.report import as_document

    document = as_document(tested, results)
    sys.stdout.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE).decode())
