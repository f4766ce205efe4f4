"""Runs in the foreground until SIGTERM or SIGINT. SIGHUP reloads the file, as `interlingua reload`."""

from __future__ import annotations

import argparse
import logging
from contextlib import nullcontext

HELP = "start the daemon"

_log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--config", metavar="FILE", required=True, help="the configuration (YAML)")
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="take over the listening sockets of the daemon at server.handover_socket, which then drains and "
        "exits; if this process does not start, that daemon goes on",
    )


def run(arguments: argparse.Namespace) -> int:
    from interlingua.translator.config import ConfigError, load, stated_log_format

    try:
        config = load(arguments.config)
    except ConfigError as error:
        if stated_log_format(arguments.config) != "json":
            raise
        return _refused(error)
    json = config.server.log_format == "json"
    if json:
        from interlingua.translator.logs.capture import json_output
    with json_output() if json else nullcontext():
        # errors of the configuration are reported before the daemon is imported
        from interlingua.translator.daemon import serve

        return serve(config, arguments.config, arguments.take_over)


def _refused(error: Exception) -> int:
    """Report the errors of a configuration that states JSON for the log."""
    from interlingua.translator.logs import setup

    setup.set_up("info", "json")
    for line in str(error).splitlines():
        _log.error("configuration refused", extra={"facts": {"reason": line}})
    return 2
