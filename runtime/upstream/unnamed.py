"""Inference by servers to which tensors are positions.

Answers have no names: only its position identifies an output, and some of these servers (graphpipe-go's
``Serve``) answer with every output in their own order, whatever a request names. Others (those of
graphpipe-py's examples) read inputs by position, whatever their names. So a request always has the inputs of
the signature, in its order, and names every output in its order: servers of all kinds read that alike, and
the caller picks what it requested. The codec checks the answer against the signature.
"""

from __future__ import annotations

from interlingua.schemas import InferRequest, RequestedOutput, Signature, Tensor, invalid_tensor, unsupported
from interlingua.schemas.bounded_text import listed


def in_signature_order(request: InferRequest, signature: Signature | None) -> InferRequest:
    """``request`` with its inputs in the order of ``signature``, for every output in its order.

    Raises INVALID_TENSOR for an unknown output, and for an input that is omitted though the signature has it
    as required, because the positions of others could shift; UNSUPPORTED for chosen outputs without a
    signature of them, and for several inputs of which the signature has none. Without a signature the order
    is the caller's.
    """
    inputs = request.inputs if signature is None else _ordered(request.inputs, signature)
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
    outputs = tuple([chosen.get(name) or RequestedOutput(name) for name in known]) or request.outputs
    return request.redirected(request.model, inputs, outputs)


def _ordered(inputs: tuple[Tensor, ...], signature: Signature) -> tuple[Tensor, ...]:
    """``inputs`` in the order of ``signature``; those that it lacks come last."""
    known = signature.input_names
    if not known and len(inputs) > 1:
        raise unsupported(
            f"input '{inputs[0].name}' cannot be distinguished from others: the server may read inputs by "
            "position, and their order is unknown: declare the model's signature with its inputs"
        )
    given = {tensor.name: tensor for tensor in inputs}
    for name, spec in known.items():
        if name not in given and not spec.optional:
            raise invalid_tensor(
                f"input '{name}' is missing: the server may read inputs by position, so none can be omitted"
            )
    return tuple([given.pop(name) for name in known if name in given]) + tuple(given.values())
