"""The daemon with a profiler in it: ``python -m benchmarks.bridging.sampler FILE serve -c CONFIG``.

ITIMER_PROF interrupts the process after some CPU time (a tick of the kernel, at least a millisecond) and
notes the functions on the stack, innermost first. SIGUSR2 writes the stacks and their counts to FILE, and
clears them.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

from interlingua.translator.cli import main

_EVERY_SECS = 0.001
_stacks: Counter[tuple[str, ...]] = Counter()


def _sample(number: int, frame: FrameType | None) -> None:
    stack = []
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        stack.append(f"{module}:{frame.f_code.co_qualname}")
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
