"""Memory of a GPU, copied to the host by CUDA's driver.

A Python model may answer with tensors that its own framework keeps on a GPU. Processes exchange tensors in
the host's memory, so such a tensor is copied once. The driver is called directly: the framework is the
model's choice.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DRIVER = "libcuda.so.1"


@cache
def _driver() -> Any:
    return ctypes.CDLL(_DRIVER)


def to_host(address: int, nbytes: int, device: int) -> NDArray[np.uint8]:
    """A copy of ``nbytes`` at ``address`` of GPU number ``device``, after all work that was started there.
    Raises ``ValueError`` without a driver, and with its error."""
    host = np.empty(nbytes, np.uint8)
    with _current(device):
        # the tensor may have been filled on any stream
        _call("cuCtxSynchronize")
        _call(
            "cuMemcpyDtoH_v2",
            ctypes.c_void_p(host.ctypes.data),
            ctypes.c_uint64(address),
            ctypes.c_size_t(nbytes),
        )
    return host


@contextmanager
def _current(device: int) -> Iterator[None]:
    """Make the primary context of ``device``, which frameworks use too, current in this thread."""
    _call("cuInit", 0)
    number, context = ctypes.c_int(), ctypes.c_void_p()
    _call("cuDeviceGet", ctypes.byref(number), device)
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
    try:
        _call("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            _call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
    finally:
        _call("cuDevicePrimaryCtxRelease_v2", number)


def _call(name: str, *arguments: Any) -> None:
    try:
        failed = getattr(_driver(), name)(*arguments)
    except (OSError, AttributeError) as error:
        raise ValueError(f"a tensor on a GPU cannot be read: {error}") from error
    if failed:
        raise ValueError(f"a tensor on a GPU cannot be read: {name} failed with CUDA error {failed}")
