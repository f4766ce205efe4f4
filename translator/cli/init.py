"""On a terminal, questions take the place of absent options. The file is commented, and `interlingua check`
accepts it. Without --to the server at --url is recognized, if it runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from interlingua.translator.cli.arguments import RefusedError

if TYPE_CHECKING:
    from interlingua.translator.cli.bridge import Bridge

HELP = "write the configuration of a bridge to a server"

T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--from",
        action="append",
        metavar="D[/T]",
        dest="clients",
        help="the dialect of the clients; repeatable",
    )
    add(
        "--to",
        metavar="D/T",
        dest="server",
        help="dialect and transport of the server, such as oip/grpc (default: detected)",
    )
    add("--url", action="append", metavar="U", dest="urls", help="an address of the server; repeatable")
    add(
        "--model",
        action="append",
        metavar="NAME[=THERE]",
        dest="models",
        help="a model, and its name on the server if that differs; repeatable",
    )
    add("-o", "--output", default="bridge.yaml", metavar="FILE", help="the file; - for standard output")
    add("--force", action="store_true", help="replace an existing file")


def run(arguments: argparse.Namespace) -> int:
    """Write the file."""
    from interlingua.translator.config import parse

    path = Path(arguments.output)
    printed = arguments.output == "-"
    if not printed and path.exists() and not arguments.force:
        raise RefusedError(f"{path} exists; --force replaces it")
    text = _bridge(arguments).text()
    # collisions, such as two listeners of one port, are errors of the whole file
    parse(text, arguments.output)
    if printed:
        sys.stdout.write(text)
        return 0
    path.write_text(text, encoding="utf-8")
    sys.stdout.write(
        f"wrote {path}\n"
        f"  interlingua check -c {path} --probe    compare it with the server\n"
        f"  interlingua serve -c {path}            start the daemon\n"
    )
    return 0


def _bridge(arguments: argparse.Namespace) -> Bridge:
    from interlingua.protocols.registry import DIALECTS
    from interlingua.translator.cli import bridge

    clients = _answer(
        arguments.clients,
        "--from",
        f"What do your clients speak? {', '.join(DIALECTS)}; /http or the like for one transport",
        bridge.clients_of,
    )
    stated = arguments.server or _recognized(arguments)
    server = _answer(
        [stated] if stated else None,
        "--to",
        f"What does the server speak? {', '.join(bridge.server_names())}",
        lambda texts: bridge.server_of(texts[0]),
    )
    urls = _answer(
        arguments.urls,
        "--url",
        "Where is the server? host:port, http://host:port/prefix or unix:path",
        lambda texts: bridge.urls_of(texts, server),
    )
    models = _answer(
        arguments.models,
        "--model",
        "Which model? NAME, or NAME=NAME_THERE if the server has another name for it",
        lambda texts: bridge.models_of(texts, server),
    )
    return bridge.Bridge(clients, server, urls, models)


def _recognized(arguments: argparse.Namespace) -> str:
    """Dialect and transport of the server at the first --url; empty without one, or if none is recognized."""
    from interlingua.protocols.transport import loop
    from interlingua.translator.probe.recognition import PATIENCE_SECS, recognize

    if not arguments.urls:
        return ""
    url, model = (each[0].split(",")[0].strip() for each in (arguments.urls, arguments.models or [""]))
    try:
        found = loop.run(recognize(url, PATIENCE_SECS, model=model.rpartition("=")[2]))
    except ValueError as error:
        raise RefusedError(f"--url: {error}") from error
    if found is None:
        sys.stderr.write(f"no known dialect is recognized at {url}\n")
        return ""
    return found.name


def _answer(stated: list[str] | None, option: str, question: str, read: Callable[[list[str]], T]) -> T:
    """What ``read`` makes of the option, or else of the first valid answer on the terminal."""
    if stated:
        try:
            return read(stated)
        except ValueError as error:
            raise RefusedError(f"{option}: {error}") from error
    if not sys.stdin.isatty():
        raise RefusedError(f"{option} is missing, and there is no terminal for questions")
    while True:
        sys.stdout.write(f"{question}\n> ")
        sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            raise RefusedError(f"{option} is missing")
        try:
            return read([line.strip()])
        except ValueError as error:
            sys.stdout.write(f"{error}\n")
