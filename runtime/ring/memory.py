"""Anonymous memory that several processes map."""

from __future__ import annotations

import mmap
import os
import weakref


class SharedFile:
    """Owns ``descriptor``, of memory that other processes may map."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)


def create(name: str, size: int) -> int:
    """The descriptor of ``size`` bytes of zeros; pages cost nothing until they are written. Raises
    ``OSError``."""
    descriptor = os.memfd_create(f"interlingua-{name}", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, size)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def attach(descriptor: int) -> mmap.mmap:
    """Map all of it, and close ``descriptor``. Raises ``OSError``."""
    try:
        return mmap.mmap(descriptor, 0)
    finally:
        os.close(descriptor)
