"""Tensors that may be kept for any time.

Most tensors are views on memory that is never written again. Memory shared with another process is different:
a client overwrites its region, and a Python model's process waits until its region is free. This module
copies such tensors.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from interlingua.schemas import Tensor

_VIEWS = (np.ndarray, memoryview)


def kept(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    return tuple(
        [
            replace(tensor, data=memoryview(bytes(tensor.view))) if _is_shared(tensor.view) else tensor
            for tensor in tensors
        ]
    )


def _is_shared(view: memoryview) -> bool:
    """Whether ``view`` is a view on a mapping, directly or through other views and arrays."""
    owner: object = view.obj
    if type(owner) is bytes:
        return False  # most are, and callers wait for this
    while isinstance(owner, _VIEWS):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return isinstance(owner, mmap.mmap)
