"""How a process ends that has been connected to Ray.

Threads of Ray's library and of Serve's routers outlive the connection. The interpreter ends them when they
next want its lock, which unwinds C++ frames that do not permit it: the process aborts after its work is done.
So it ends without finalizing the interpreter.
"""

from __future__ import annotations

import logging
import os
import sys

connected = False
"""Whether this process has been connected."""


def leave(code: int) -> None:
    """End the process with ``code`` if it has been connected; else return."""
    if connected:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
