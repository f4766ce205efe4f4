"""The batch dimension of tensors between a model with batches and one without, as steps of one ensemble.

If only the batch does not fit, the tensor becomes a batch of one, or stops being one; otherwise its first
dimension is the batch on both sides. Version 1 and Triton do the same.
"""

from __future__ import annotations

from interlingua.runtime.models.shapes import fits
from interlingua.schemas import Tensor


def fitted(tensor: Tensor, declared: tuple[int, ...], batched: bool) -> Tensor:
    """``tensor``, with or without a batch of one before its shape if only that fits ``declared``, a full
    shape that begins with a batch if ``batched``. The data is the same."""
    shape = tensor.shape
    if len(shape) == len(declared):
        return tensor
    if batched and fits(shape, declared[1:]):
        return Tensor(tensor.name, tensor.datatype, (1, *shape), tensor.data)
    if not batched and shape[:1] == (1,) and fits(shape[1:], declared):
        return Tensor(tensor.name, tensor.datatype, shape[1:], tensor.data)
    return tensor
