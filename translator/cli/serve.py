"""Runs in the foreground until SIGTERM or SIGINT. SIGHUP reloads the file, as `interlingua reload`. With PATH
or --example a configuration is written: every dialect on --port, gRPC on the next port, health, metrics and
the dashboard on the one after it."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

from interlingua.translator.cli.arguments import RefusedError, port

HELP = "start the daemon"

_log = logging.getLogger(__name__)

_PORT, _HOST = 8000, "127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "path", metavar="PATH", nargs="?", help="a model file, a model folder or a folder of them"
    )
    what.add_argument("-c", "--config", metavar="FILE", help="the configuration (YAML)")
    what.add_argument("--example", action="store_true", help="serve a classifier of handwritten digits")
    add("--port", type=port, metavar="N", help=f"with PATH or --example, the first port (default: {_PORT})")
    add("--host", metavar="H", help=f"with PATH or --example, the address to bind (default: {_HOST})")
    add(
        "--take-over",
        action="store_true",
        help="take over the listening sockets of the daemon at server.handover_socket, which then drains and "
        "exits; if this process does not start, that daemon goes on",
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.config:
        if arguments.port is not None or arguments.host is not None:
            raise RefusedError("--port and --host are for PATH and --example: the file states its addresses")
        return _serve(arguments.config, arguments.take_over)
    with tempfile.TemporaryDirectory(prefix="interlingua-") as folder:
        file = Path(folder) / "config.yaml"
        file.write_text(_written(arguments), encoding="utf-8")
        if sys.stdout.isatty():
            _announce(arguments, file)
        return _serve(str(file), arguments.take_over)


def _written(arguments: argparse.Namespace) -> str:
    from interlingua.translator.cli.serve_path import configuration, example_models

    path = example_models() if arguments.example else Path(arguments.path)
    first = _PORT if arguments.port is None else arguments.port
    return configuration(path, arguments.host or _HOST, first)


def _announce(arguments: argparse.Namespace, file: Path) -> None:
    """Show a person what is about to be served, and how to go on from there."""
    what = "the example model" if arguments.example else arguments.path
    sys.stdout.write(f"Serving {what}. The configuration, until this process ends: {file}\n")
    if arguments.example and arguments.port != 0:
        from interlingua.translator.cli.serve_path import example_models

        place = f"{arguments.host or _HOST}:{_PORT if arguments.port is None else arguments.port}"
        image = example_models().parent / "seven.npy"
        sys.stdout.write(
            f"Try it: interlingua infer --url {place} --model digits --input image=@{image} --output label\n"
        )
    sys.stdout.flush()


def _serve(path: str, take_over: bool) -> int:
    from interlingua.translator.config import ConfigError, load, stated_log_format

    try:
        config = load(path)
    except ConfigError as error:
        if stated_log_format(path) != "json":
            raise
        return _refused(error)
    json = config.server.log_format == "json"
    if json:
        from interlingua.translator.logs.capture import json_output
    with json_output() if json else nullcontext():
        # errors of the configuration are reported before the daemon is imported
        from interlingua.translator.daemon import serve

        return serve(config, path, take_over)


def _refused(error: Exception) -> int:
    """Report the errors of a configuration that states JSON for the log."""
    from interlingua.translator.logs import setup

    setup.set_up("info", "json")
    for line in str(error).splitlines():
        _log.error("configuration refused", extra={"facts": {"reason": line}})
    return 2
