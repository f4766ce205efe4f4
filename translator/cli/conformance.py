"""Searches for requests that break a rule and prints the smallest one as a shell command. Tests every model
that the server lists unless --model is given. Needs the extra `conformance`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from interlingua.translator.cli.arguments import RefusedError, add_server

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
    add("--examples", type=int, default=25, metavar="N", help="examples for each check (default: 25)")
    add("--secs", type=float, default=20.0, metavar="S", help="limit for each check (default: 20)")
    add("--seed", type=int, default=0, metavar="N", help="seed of the examples (default: 0)")
    add("--timeout-secs", type=float, default=10.0, metavar="S", help="for each request (default: 10)")
    add("--junit", metavar="FILE", help="write JUnit XML")
    add("--markdown", metavar="FILE", help="write a Markdown page")


def run(arguments: argparse.Namespace) -> int:
    """Run the checks and print the results. Returns 1 if a rule is broken."""
    try:
        import hypothesis  # noqa: F401
    except ImportError:
        raise RefusedError("install the extra: pip install 'interlingua[conformance]'") from None
    from interlingua.translator.conformance.kit import Effort
    from interlingua.translator.conformance.report import as_details, as_junit, as_line, as_markdown, summary
    from interlingua.translator.conformance.session import UsageError, examine

    results = []
    effort = Effort(arguments.examples, arguments.secs, arguments.seed)
    try:
        tested, running = examine(
            arguments.dialect,
            arguments.transport,
            arguments.url,
            arguments.models or (),
            arguments.signature or None,
            effort,
            arguments.timeout_secs,
            arguments.only,
        )
        for result in running:
            results.append(result)
            sys.stdout.write(f"{as_line(result)}\n")
            sys.stdout.flush()
        for name, write in (("junit", as_junit), ("markdown", as_markdown)):
            if getattr(arguments, name):
                Path(getattr(arguments, name)).write_bytes(write([(tested, results)]))
    except UsageError as error:
        raise RefusedError(str(error)) from error
    failed = [result for result in results if result.status.bad]
    for result in failed:
        sys.stdout.write(f"\n{as_details(result)}\n")
    sys.stdout.write(f"\n{summary(results)}\n")
    return 1 if failed else 0
