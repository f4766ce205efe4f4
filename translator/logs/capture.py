"""Makes every line that the server prints a JSON object: the output of models, libraries and Python itself
on standard output and standard error goes through the process of ``wrapper``."""

from __future__ import annotations

import faulthandler
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from interlingua.translator.logs import setup

_PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from interlingua.translator.logs.wrapper import main
sys.path.pop(0)
main({stdout}, {stderr})
"""
_ROOT = str(Path(__file__).parents[3])

_END_SECS = 2.0
"""How long the last lines may take. A process that outlives the server may hold the pipes."""

_log = logging.getLogger(__name__)


@contextmanager
def json_output() -> Iterator[None]:
    """Within the block, and in the processes that it starts, every printed line is a JSON object; so is the
    traceback of an exception that ends the program. The log of this process is written directly. A fatal
    signal has its traceback on standard error as text: nothing else may run then."""
    saved = os.dup(1), os.dup(2)
    reader = _start(saved)
    stream = os.fdopen(saved[1], "w", encoding="utf-8", errors="backslashreplace")
    faulthandler.enable(stream)
    setup.write_to(stream)
    # what goes wrong before the configuration is applied is in the log as well
    setup.set_up("info", "json")
    sys.excepthook = _uncaught
    threading.excepthook = lambda found: _uncaught(found.exc_type, found.exc_value, found.exc_traceback)
    sys.unraisablehook = _unraisable
    logging.captureWarnings(capture=True)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        try:
            reader.wait(_END_SECS)
        except subprocess.TimeoutExpired:
            _log.warning("output still open", extra={"facts": {"pid": reader.pid}})


def _start(saved: tuple[int, int]) -> subprocess.Popen[bytes]:
    """Start the wrapper, and print to it from now on."""
    pipes = os.pipe(), os.pipe()
    sources = [pipes[0][0], pipes[1][0]]
    program = _PROGRAM.format(root=_ROOT, stdout=sources[0], stderr=sources[1])
    reader = subprocess.Popen(  # noqa: S603
        [sys.executable, "-I", "-S", "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=saved[0],
        stderr=saved[1],
        pass_fds=sources,
    )
    for (source, printed), descriptor in zip(pipes, (1, 2), strict=True):
        os.dup2(printed, descriptor)
        os.close(printed)
        os.close(source)
    return reader


def _uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if error is not None and not issubclass(kind, KeyboardInterrupt | SystemExit):
        _log.critical("unexpected error", exc_info=(kind, error, trace))


def _unraisable(found: Any) -> None:
    facts = {"where": repr(found.object)}
    info = (found.exc_type, found.exc_value, found.exc_traceback) if found.exc_value else None
    _log.error(found.err_msg or "exception ignored", exc_info=info, extra={"facts": facts})
