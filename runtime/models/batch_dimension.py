"""The batch dimension of tensors that go from a model with batches to one without, or back.

Models of both kinds may be steps of one ensemble. Where the dimensions of a tensor fit but for the batch, the
tensor is a batch of one; where they do not, its first dimension is the batch, on both sides. Version 1 and
Triton do the same.
"""

from __future__ import annotations

from interlingua.runtime.models.shapes import fits
from interlingua.schemas import Tensor


def fitted(tensor: Tensor, declared: tuple[int, ...], batched: bool) -> Tensor:
    """``tensor`` with a batch of one before its shape, or without it, where only that fits ``declared``; else
    the tensor as it is. ``declared`` is a full shape, which begins with a batch where it is ``batched``. The
    data is the same."""
    shape = tensor.shape
    if len(shape) == len(declared):
        return tensor
    if batched and fits(shape, declared[1:]):
        return Tensor(tensor.name, tensor.datatype, (1, *shape), tensor.data)
    if not batched and shape[:1] == (1,) and fits(shape[1:], declared):
        return Tensor(tensor.name, tensor.datatype, shape[1:], tensor.data)
    return tensor
