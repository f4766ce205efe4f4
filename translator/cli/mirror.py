"""The exit code is 1 if answers differed. --file reads what --json printed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from interlingua.translator.cli.arguments import RefusedError

HELP = "print the reports of mirrors"

_TIMEOUT_SECS = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``mirror``: ``report``, from a running server or a file."""
    parser.add_argument("action", choices=["report"], help="print how answers differed")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--url", metavar="U", help="the admin address: host:port or http://host:port")
    source.add_argument("--file", metavar="FILE", help="a saved report")
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print a report. Returns 1 if an answer differed or the server failed, 2 for wrong usage."""
    import orjson

    from interlingua.protocols.transport import loop
    from interlingua.translator.mirror.table import as_text

    try:
        if arguments.file is not None:
            report = orjson.loads(Path(arguments.file).read_bytes())
        else:
            report = loop.run(_fetch(arguments.url))
        text = as_text(report)
        different = bool(report["different"])
    # any other document
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise RefusedError(f"not a mirror report: {error}") from error
    if arguments.json:
        text = orjson.dumps(report, option=orjson.OPT_INDENT_2).decode() + "\n"
    sys.stdout.write(text)
    return 1 if different else 0


async def _fetch(url: str) -> Any:
    """The report of the server whose admin address is ``url``. Raises ``InferenceError`` if the server fails,
    ``ValueError`` for an invalid URL or JSON."""
    import time

    import orjson

    from interlingua.protocols.transport.address import parse_url
    from interlingua.protocols.transport.client_options import ClientOptions
    from interlingua.protocols.transport.http.client import PooledHttpClient
    from interlingua.protocols.wire import HttpCall
    from interlingua.schemas import Context, ErrorCode, InferenceError

    client = PooledHttpClient(parse_url(url, "http"), ClientOptions(connect_timeout_secs=_TIMEOUT_SECS))
    try:
        request = HttpCall("GET", "/mirror", context=Context(deadline=time.monotonic() + _TIMEOUT_SECS))
        reply = await client.send(request)
    finally:
        await client.close()
    if reply.status != 200:
        raise InferenceError(
            ErrorCode.BAD_UPSTREAM, f"{url}/mirror answers {reply.status}: is that the admin address?"
        )
    return orjson.loads(reply.body)
