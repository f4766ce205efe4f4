"""Runs in the foreground until SIGTERM or SIGINT. SIGHUP reloads the file, as `interlingua reload`."""

from __future__ import annotations

import argparse

HELP = "start the daemon"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--config", metavar="FILE", required=True, help="the configuration (YAML)")
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="take over the listening sockets of the daemon at server.handover_socket, which then drains and "
        "exits; if this process does not start, that daemon goes on",
    )


def run(arguments: argparse.Namespace) -> int:
    from interlingua.translator.config import load

    config = load(arguments.config)
    # errors of the configuration are reported before the daemon is imported
    from interlingua.translator.daemon import serve

    return serve(config, arguments.config, arguments.take_over)
