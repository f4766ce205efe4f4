"""BYTES for engines whose strings are text: the elements must be UTF-8."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.schemas import Tensor, invalid_tensor


def text_array(tensor: Tensor, engine: str) -> NDArray[Any]:
    """The elements of ``tensor`` as ``str``, in its shape. Raises INVALID_TENSOR for an element that is not
    UTF-8, naming input and element, since ``engine`` carries text only."""
    texts = np.empty(tensor.count, dtype=object)
    for index, element in enumerate(tensor.elements()):
        try:
            texts[index] = element.decode()
        except UnicodeDecodeError as error:
            raise invalid_tensor(
                f"input '{tensor.name}': element {index} is not UTF-8, and {engine} carries text only: "
                f"{error.reason} at byte {error.start}"
            ) from error
    return texts.reshape(tensor.shape)
