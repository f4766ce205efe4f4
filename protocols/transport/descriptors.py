"""A reserve of file descriptors: connections of clients leave some to connections to upstreams, and both
leave some to the rest of the process: the admin address, files of models, logs.

The kernel assigns the lowest free number, so a number says how many descriptors are in use.
"""

from __future__ import annotations

import errno
import os
import resource

UNLIMITED = 1 << 62

SPARE_OF_CLIENTS = 128
"""How many descriptors connections of clients leave, at most a quarter of all."""

SPARE_OF_UPSTREAMS = 32
"""How many connections to upstreams leave, at most a sixteenth of all."""


def client_ceiling() -> int:
    """The lowest number of a descriptor that connections of clients must not use."""
    return _ceiling(SPARE_OF_CLIENTS, 4)


def require_for_upstream() -> None:
    """Raise ``OSError`` if a new descriptor would be one of those that connections to upstreams leave."""
    number = os.open(os.devnull, os.O_RDONLY)
    os.close(number)
    if number >= _ceiling(SPARE_OF_UPSTREAMS, 16):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def pipe_ceiling() -> int:
    """The lowest number of a descriptor that pipes (``kernel_pipe``) must not use: half are for others."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return UNLIMITED if limit == resource.RLIM_INFINITY else limit // 2


def _ceiling(spare: int, part: int) -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return UNLIMITED if limit == resource.RLIM_INFINITY else limit - min(spare, limit // part)
