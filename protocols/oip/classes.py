"""Classes instead of an output: BYTES elements of the form ``value:index[:label]``.

Targets return raw outputs. An output is ranked by ``protocols.classification`` when its answer is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interlingua.protocols.classification import check_ranked, classify
from interlingua.schemas import Datatype, InferResponse, RequestedOutput, Signature, Tensor, pack_bytes


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes requested of an output: their number and labels. ``batched``: its first dimension is a
    batch."""

    count: int
    labels: tuple[str, ...] = ()
    batched: bool = False


RequestedClasses = Mapping[str, Classes]
"""The outputs requested as classes, by name."""

NO_CLASSES: RequestedClasses = {}


def requested_classes(outputs: Sequence[RequestedOutput] | None, signature: Signature) -> RequestedClasses:
    """The classes that ``outputs`` request. Raises INVALID_TENSOR for a datatype that is not ranked."""
    if not outputs or not any(output.classification for output in outputs):
        return NO_CLASSES
    requested: dict[str, Classes] = {}
    for output in outputs:
        spec = signature.output_names.get(output.name)
        # the runtime refuses an output that the model does not have
        if output.classification and spec is not None:
            check_ranked(output.name, spec.datatype)
            batched = signature.max_batch_size > 0
            requested[output.name] = Classes(output.classification, spec.labels, batched)
    return requested


def with_classes(response: InferResponse, requested: RequestedClasses) -> tuple[Tensor, ...]:
    """The outputs of ``response``, those in ``requested`` as classes. Raises INVALID_TENSOR as above."""
    if not requested:
        return response.outputs
    return tuple(
        _classes(tensor, requested[tensor.name]) if tensor.name in requested else tensor
        for tensor in response.outputs
    )


def _classes(tensor: Tensor, requested: Classes) -> Tensor:
    """BYTES of shape [batch, n]; [n] for a model without batches."""
    entries = classify(tensor, requested.count, requested.labels, batched=requested.batched)
    each = (len(entries[0]),) if entries else (0,)
    shape = (len(entries), *each) if requested.batched else each
    packed = pack_bytes(ranked.text.encode() for entry in entries for ranked in entry)
    return Tensor(tensor.name, Datatype.BYTES, shape, memoryview(packed))
