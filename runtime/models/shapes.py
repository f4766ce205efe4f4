"""Whether a shape is one that a model declares."""

from __future__ import annotations


def fits(shape: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    """Whether ``shape`` is ``declared``, where -1 is any size."""
    if len(shape) != len(declared):
        return False
    for size, expected in zip(shape, declared, strict=True):
        if size != expected and expected != -1:
            return False
    return True
