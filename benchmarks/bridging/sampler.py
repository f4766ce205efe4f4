"""The daemon with a profiler in it: ``python -m benchmarks.bridging.sampler FILE serve -c CONFIG``.

ITIMER_PROF interrupts the process after some CPU time (a tick of the kernel, at least a millisecond) and
notes the functions on the stack, innermost first. A function that both sides share counts as one of the
connection that the event loop calls it for. SIGUSR2 writes the stacks and their counts to FILE, and clears
them.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from types import FrameType
from typing import Any

from interlingua.translator.cli import main

_EVERY_SECS = 0.001
_SHARED: Mapping[str, Callable[[Any], object]] = {
    "SharedReceiver": lambda receiver: receiver,
    "DirectBody": attrgetter("_owner"),
    "WriteBatch": lambda batch: attrgetter("_transport")(batch).get_protocol(),
}
"""Classes of ``protocols.transport`` with methods that the event loop calls, and the connection of each."""

_stacks: Counter[tuple[str, ...]] = Counter()


def name_of(frame: FrameType) -> str:
    """The ``module:function`` of ``frame``."""
    module, function = frame.f_globals.get("__name__", ""), frame.f_code.co_qualname
    owner, _, method = function.rpartition(".")
    shared = owner in _SHARED and method != "__init__"
    if not (shared and module.startswith("interlingua.protocols.transport.")):
        return f"{module}:{function}"
    connection = type(_SHARED[owner](frame.f_locals["self"]))
    return f"{connection.__module__}:{connection.__qualname__}.{method}"


def _sample(number: int, frame: FrameType | None) -> None:
    stack = []
    while frame is not None:
        stack.append(name_of(frame))
        frame = frame.f_back
    _stacks[tuple(stack)] += 1


def _write(file: Path) -> None:
    part = file.with_suffix(".part")
    part.write_text(json.dumps([[count, stack] for stack, count in _stacks.items()]))
    part.rename(file)
    _stacks.clear()


if __name__ == "__main__":
    place = Path(sys.argv.pop(1))
    signal.signal(signal.SIGPROF, _sample)
    signal.signal(signal.SIGUSR2, lambda number, frame: _write(place))
    signal.setitimer(signal.ITIMER_PROF, _EVERY_SECS, _EVERY_SECS)
    sys.exit(main())
