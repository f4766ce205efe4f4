"""Tensors that may be kept for as long as one likes.

Most tensors are views on memory that is never written to again. Those in memory that is shared with another
process are not: a client writes its region again, and a Python model's process waits for its region to come
back. Here they are copied.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from interlingua.schemas import Tensor


def kept(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """``tensors``, the bytes of those copied that lie in memory shared with another process."""
    return tuple([_kept(tensor) for tensor in tensors])


def _kept(tensor: Tensor) -> Tensor:
    view = tensor.view
    return replace(tensor, data=memoryview(bytes(view))) if _is_shared(view) else tensor


def _is_shared(view: memoryview) -> bool:
    """Whether ``view`` is, through any number of views and arrays, one on a mapping."""
    owner: object = view.obj
    if type(owner) is bytes:
        return False  # most are, and callers wait for this
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return isinstance(owner, mmap.mmap)
