"""Runs the daemon without a garbage collector, and lists what one would have to free.

It is started with the arguments of ``interlingua``. SIGUSR2 appends a line to the file that
``GARBAGE`` names: a JSON object with the number of unreachable objects by type, since the last signal.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
from collections import Counter
from types import FrameType, TracebackType
from typing import Any


def _name(found: Any) -> str:
    if isinstance(found, FrameType):
        return f"frame of {found.f_code.co_qualname} in {found.f_globals.get('__name__')}"
    if isinstance(found, TracebackType):
        return f"traceback of {found.tb_frame.f_code.co_qualname}"
    kind = type(found)
    return f"{kind.__module__}.{kind.__qualname__}"


def _collect(*_: object) -> None:
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    counts = Counter(map(_name, gc.garbage))
    gc.set_debug(0)
    gc.garbage.clear()
    gc.collect()
    with open(os.environ["GARBAGE"], "a") as file:
        print(json.dumps(counts), file=file)


if __name__ == "__main__":
    gc.disable()
    signal.signal(signal.SIGUSR2, _collect)
    runpy.run_module("interlingua", run_name="__main__", alter_sys=True)
