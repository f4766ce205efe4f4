"""Makes glibc keep big blocks instead of returning each to the kernel.

By default every buffer of a few MiB is mapped, faulted in page by page, and unmapped again; for large
messages that costs more than everything else together. With higher thresholds, freed blocks are reused, for
some tens of MiB held in reserve. Set once, before the first request.
"""

from __future__ import annotations

import ctypes
import os
import platform

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

MMAP_THRESHOLD_BYTES = 32 << 20
"""Blocks of this size and above are still mapped separately; glibc accepts at most 32 MiB."""

TRIM_THRESHOLD_BYTES = 512 << 20
"""How much free memory the top of the heap keeps."""

_OWN_SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def tune_allocator() -> bool:
    """Raise the thresholds of this process. False with another C library, or if the environment sets them."""
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in _OWN_SETTINGS):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    # each call also ends glibc's own adjusting, so setting one alone would make matters worse
    return bool(
        mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES) and mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)
    )
