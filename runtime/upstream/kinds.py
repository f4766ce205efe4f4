"""Which operations differ in how an upstream gets them."""

from __future__ import annotations

from interlingua.schemas import Operation

INFERENCE = frozenset({Operation.INFER, Operation.INFER_STREAM})
"""Operations that the gate limits."""

FLAVORED = frozenset({Operation.INFER, Operation.INFER_STREAM, Operation.MODEL_LOAD, Operation.MODEL_UNLOAD})
"""Operations with another form on some servers."""

HARMLESS = frozenset(
    {
        Operation.LIVE,
        Operation.READY,
        Operation.MODEL_READY,
        Operation.SERVER_METADATA,
        Operation.MODEL_METADATA,
        Operation.MODEL_CONFIG,
        Operation.STATISTICS,
        Operation.STATUS,
        Operation.REPOSITORY_INDEX,
    }
)
"""Operations that only read: after a failure another server may get the same call."""

EVERYWHERE = frozenset({Operation.MODEL_LOAD, Operation.MODEL_UNLOAD})
"""Operations for every server, so that all stay alike."""
