"""The beginning of an output, kept for people who compare both answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interlingua.schemas import Datatype, Tensor
from interlingua.schemas.tensor import packed_elements
from interlingua.translator.admin.elements import shown

MOST_ELEMENTS = 1000
"""As many as the scores of a classifier of ImageNet."""

_MOST_BYTES = 16384
"""The maximum size of what is kept, so that BYTES are bounded, too."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """``data`` has the first elements, as in ``Tensor``; ``elements`` counts all."""

    datatype: Datatype
    shape: tuple[int, ...]
    elements: int
    data: bytes

    @classmethod
    def of(cls, tensor: Tensor) -> Excerpt:
        """A copy, so that the memory of the answer can be freed."""
        return cls(tensor.datatype, tensor.shape, tensor.count, bytes(tensor.view[: _size(tensor)]))

    def as_dict(self) -> dict[str, Any]:
        whole = self.datatype is Datatype.BYTES
        kept = 0 if whole else len(self.data) // self.datatype.itemsize
        tensor = Tensor("", self.datatype, (kept,), memoryview(self.data))
        return {
            "datatype": self.datatype.value,
            "shape": self.shape,
            "elements": self.elements,
            "data": shown(tensor, MOST_ELEMENTS),
        }


def _size(tensor: Tensor) -> int:
    """Bytes of whole elements to keep."""
    if tensor.datatype is not Datatype.BYTES:
        return MOST_ELEMENTS * tensor.datatype.itemsize
    size = 0
    for number, element in enumerate(packed_elements(tensor.view)):
        if number == MOST_ELEMENTS or size + 4 + len(element) > _MOST_BYTES:
            break
        size += 4 + len(element)
    return size
