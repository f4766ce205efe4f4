"""Classes instead of an output: BYTES elements of the form ``value:index[:label]``.

Contract: what a request asks for is kept beside its reply form, and an output is ranked when its answer
is written, since targets know raw outputs alone. The ranking is that of ``protocols.classification``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interlingua.protocols.classification import Ranked, check_ranked, classify
from interlingua.schemas import Datatype, InferResponse, RequestedOutput, Signature, Tensor, pack_bytes


@dataclass(frozen=True, slots=True)
class Classes:
    """How many classes of an output are asked for, their names, and whether its first dimension is a
    batch."""

    count: int
    labels: tuple[str, ...] = ()
    batched: bool = False


Asked = Mapping[str, Classes]
"""The outputs that are asked for as classes, by name."""

NOTHING_ASKED: Asked = {}


def asked_classes(outputs: Sequence[RequestedOutput] | None, signature: Signature) -> Asked:
    """What ``outputs`` ask for. Raises INVALID_TENSOR for an output whose datatype is not ranked."""
    if not outputs or not any(output.classification for output in outputs):
        return NOTHING_ASKED
    asked: dict[str, Classes] = {}
    for output in outputs:
        spec = signature.output_names.get(output.name)
        # the runtime refuses an output that the model does not have
        if output.classification and spec is not None:
            check_ranked(output.name, spec.datatype)
            batched = signature.max_batch_size > 0
            asked[output.name] = Classes(output.classification, spec.labels, batched)
    return asked


def as_asked(response: InferResponse, asked: Asked) -> tuple[Tensor, ...]:
    """The outputs of ``response``, those in ``asked`` as classes. Raises INVALID_TENSOR as above."""
    if not asked:
        return response.outputs
    return tuple(
        _classes(tensor, asked[tensor.name]) if tensor.name in asked else tensor
        for tensor in response.outputs
    )


def _classes(tensor: Tensor, asked: Classes) -> Tensor:
    """BYTES of shape [batch, n], or [n] where the model takes no batches."""
    entries = classify(tensor, asked.count, asked.labels, batched=asked.batched)
    each = (len(entries[0]),) if entries else (0,)
    shape = (len(entries), *each) if asked.batched else each
    packed = pack_bytes(_element(ranked) for entry in entries for ranked in entry)
    return Tensor(tensor.name, Datatype.BYTES, shape, memoryview(packed))


def _element(ranked: Ranked) -> bytes:
    # an integer of 64 bits would not survive as a float
    value = f"{ranked.value}.000000" if isinstance(ranked.value, int) else f"{ranked.value:f}"
    element = f"{value}:{ranked.place}"
    return (f"{element}:{ranked.label}" if ranked.label else element).encode()
