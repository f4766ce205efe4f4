"""Inference by servers whose answers have tensors without names.

Only its position identifies an output, and some of these servers (graphpipe-go's ``Serve``) answer with every
output in their own order, whatever a request names. So a request always names every output of the signature,
in its order: servers of both kinds answer that alike, and the caller picks what it requested. The codec
checks the answer against the signature.
"""

from __future__ import annotations

from interlingua.schemas import InferRequest, RequestedOutput, Signature, invalid_tensor, unsupported
from interlingua.schemas.bounded_text import listed


def naming_all(request: InferRequest, signature: Signature | None) -> InferRequest:
    """``request`` for every output of ``signature``, in its order. Raises INVALID_TENSOR for an unknown
    output, UNSUPPORTED for chosen outputs without a signature."""
    known = signature.output_names if signature is not None else {}
    chosen = {output.name: output for output in request.outputs or ()}
    for name in chosen:
        if not known:
            raise unsupported(
                f"output '{name}' cannot be distinguished: answers have no names, and the order of outputs "
                "is unknown: declare the model's signature, or request all outputs"
            )
        if name not in known:
            raise invalid_tensor(f"the model has no output '{name}' (there are: {listed(known)})")
    if not known:
        return request
    outputs = tuple([chosen.get(name) or RequestedOutput(name) for name in known])
    return request.redirected(request.model, request.inputs, outputs)
