"""Runs in the foreground until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import sys

HELP = "start the daemon"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--config", metavar="FILE", required=True, help="the configuration (YAML)")


def run(arguments: argparse.Namespace) -> int:
    from interlingua.translator.config import ConfigError, load

    try:
        config = load(arguments.config)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    from interlingua.translator.daemon import serve

    return serve(config)
