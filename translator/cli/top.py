"""Requests per second, failures, latencies and queues of every model, upstream servers and processes. On a
terminal the table is updated in place until Ctrl-C; a pipe gets one table after the other."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from interlingua.translator.cli.arguments import NoAnswerError, add_admin, positive

if TYPE_CHECKING:
    from interlingua.translator.cli.snapshots import DaemonReports, DaemonView

HELP = "show what a running daemon does, as a live table"

ADMIN = "127.0.0.1:8002"

_TIMEOUT_SECS = 10.0

# ECMA-48 and xterm: the alternate screen, the cursor, wrapped lines; the top left; clearing to the end
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_admin(parser, ADMIN)
    add("--interval-secs", type=positive, default=2.0, metavar="S", help="between two tables (default: 2)")
    add("--once", action="store_true", help="print one table, of the first interval")
    add("--json", action="store_true", help="print it as one line of JSON")


def run(arguments: argparse.Namespace) -> int:
    """Show tables. Raises ``NoAnswerError`` if the daemon does not answer the first query."""
    before = _snapshot(arguments)
    if arguments.once or arguments.json:
        return _once(arguments, before)
    with _screen() as on_screen:
        while True:
            time.sleep(arguments.interval_secs)
            try:
                now = _snapshot(arguments)
            except NoAnswerError as error:
                _show([str(error)], on_screen)
                continue
            _show(_lines(before, now), on_screen)
            before = now


def _once(arguments: argparse.Namespace, before: DaemonReports) -> int:
    import orjson

    from interlingua.translator.cli.snapshots import difference

    time.sleep(arguments.interval_secs)
    now = _snapshot(arguments)
    if arguments.json:
        document = difference(before, now).document()
        sys.stdout.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE).decode())
    else:
        sys.stdout.writelines(f"{line}\n" for line in _lines(before, now))
    return 0


def _snapshot(arguments: argparse.Namespace) -> DaemonReports:
    from interlingua.translator.cli.admin_address import connection_of
    from interlingua.translator.cli.snapshots import snapshot

    return snapshot(connection_of(arguments, _TIMEOUT_SECS))


@contextmanager
def _screen() -> Iterator[bool]:
    """Whether there is a terminal, which shows its former content afterwards."""
    on_screen = sys.stdout.isatty()
    if not on_screen:
        yield False
        return
    sys.stdout.write(_ENTER)
    try:
        yield True
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


def _show(lines: list[str], on_screen: bool) -> None:
    if on_screen:
        height = os.get_terminal_size(sys.stdout.fileno()).lines or 24
        if len(lines) > height:
            lines = [*lines[: height - 1], f"... and {len(lines) - height + 1} more lines"]
        text = f"{_END_OF_LINE}\r\n".join(lines)
        sys.stdout.write(f"{_HOME}{text}{_END_OF_LINE}{_END_OF_SCREEN}")
    else:
        sys.stdout.write("\n".join(lines) + "\n\n")
    sys.stdout.flush()


def _lines(before: DaemonReports, now: DaemonReports) -> list[str]:
    from interlingua.translator.cli.snapshots import difference
    from interlingua.translator.cli.top_table import table

    found = difference(before, now)
    return [_headline(found), "", *table(found)]


def _headline(view: DaemonView) -> str:
    from interlingua.translator.cli.colours import painted

    state = painted("ready", "green", sys.stdout)
    if not view.ready:
        state = painted(f"not ready: {view.reason}", "red", sys.stdout)
    rates = f"{view.requests_per_sec:.1f} requests/s, {view.failed_per_sec:.1f} errors/s"
    return f"{view.name} {view.version}, up for {view.uptime_secs:.0f} s, {state}, {rates}"
