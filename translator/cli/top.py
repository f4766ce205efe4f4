"""Requests per second, failures, latencies and queues of every model, upstream servers and processes. On a
terminal the table is updated in place: s sorts by the next column, r reverses, q quits. A pipe gets one table
after the other."""

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
    from interlingua.translator.cli.top_table import ModelOrder

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
    return _watch(arguments, before)


def _watch(arguments: argparse.Namespace, before: DaemonReports) -> int:
    """Show tables until someone quits."""
    from interlingua.translator.cli.keyboard import keys
    from interlingua.translator.cli.top_table import ModelOrder

    order = ModelOrder()
    view: DaemonView | None = None
    with _screen() as on_screen, keys() as keyboard:
        due = time.monotonic() + arguments.interval_secs
        while (key := keyboard.wait(due - time.monotonic())) != "q":
            if key == "s":
                order.next_column()
            elif key == "r":
                order.reverse = not order.reverse
            elif not key:
                due = time.monotonic() + arguments.interval_secs
                try:
                    now = _snapshot(arguments)
                except NoAnswerError as error:
                    _show([str(error)], on_screen)
                    continue
                before, view = now, _difference(before, now)
            if view is not None:
                hint = _hint(order) if on_screen and keyboard.is_there else ""
                _show(_lines(view, order, hint), on_screen)
    return 0


def _once(arguments: argparse.Namespace, before: DaemonReports) -> int:
    import orjson

    time.sleep(arguments.interval_secs)
    now = _snapshot(arguments)
    if arguments.json:
        document = _difference(before, now).document()
        sys.stdout.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE).decode())
    else:
        sys.stdout.writelines(f"{line}\n" for line in _lines(_difference(before, now)))
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


def _difference(before: DaemonReports, now: DaemonReports) -> DaemonView:
    from interlingua.translator.cli.snapshots import difference

    return difference(before, now)


def _lines(view: DaemonView, order: ModelOrder | None = None, hint: str = "") -> list[str]:
    from interlingua.translator.cli.top_table import table

    return [_headline(view), hint, *table(view, order)]


def _hint(order: ModelOrder) -> str:
    from interlingua.translator.cli.colours import painted

    direction = ", reversed" if order.reverse else ""
    return painted(f"sorted by {order.column}{direction}; s sort, r reverse, q quit", "dim", sys.stdout)


def _headline(view: DaemonView) -> str:
    from interlingua.translator.cli.colours import painted

    state = painted("ready", "green", sys.stdout)
    if not view.ready:
        state = painted(f"not ready: {view.reason}", "red", sys.stdout)
    rates = f"{view.requests_per_sec:.1f} requests/s, {view.failed_per_sec:.1f} errors/s"
    return f"{view.name} {view.version}, up for {view.uptime_secs:.0f} s, {state}, {rates}"
