"""The daemon reads its file again and applies all of it, or nothing; docs/operations.md has the rules. Prints
what has changed, or why nothing has. Exit codes: 0 reloaded, 1 refused or no answer, 2 wrong usage."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from interlingua.translator.cli.arguments import add_admin, positive

HELP = "reload the configuration of a running daemon"

_PATH = "/reload"
_ANSWERS = (200, 422)
"""Those with a document."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_admin(parser)
    add("--timeout-secs", type=positive, default=300.0, metavar="S", help="for the answer (default: 300)")
    add("--json", action="store_true", help="print the answer as one line of JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the answer of the daemon. Returns 1 if it has refused the reload, or does not answer."""
    import orjson

    from interlingua.translator.cli.admin_address import answer, connection_of
    from interlingua.translator.reload.outcome import lines

    connection = connection_of(arguments, arguments.timeout_secs)
    try:
        status, body = answer(connection, "POST", _PATH, {"Content-Length": "0"})
    finally:
        connection.close()
    if status not in _ANSWERS:
        sys.stderr.write(f"interlingua reload: status {status}: {body.decode(errors='replace').strip()}\n")
        return 1
    document: dict[str, Any] = orjson.loads(body)
    shown = [orjson.dumps(document).decode()] if arguments.json else lines(document)
    stream = sys.stdout if document["reloaded"] or arguments.json else sys.stderr
    stream.writelines(f"{line}\n" for line in shown)
    return 0 if document["reloaded"] else 1
