"""Classes and regressions: the outputs of a model as the answers to requests with examples.

As in the signatures of the original server, ``classes`` and ``scores`` are the outputs of a classification,
``outputs`` that of a regression; a model without these has one output of floats, whose labels name the
classes.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

from numpy.typing import NDArray

from interlingua.protocols.tfserving.codec import NAME_OF
from interlingua.schemas import Datatype, InferResponse, Signature, Tensor, invalid_tensor

_CLASSES, _SCORES, _OUTPUTS = "classes", "scores", "outputs"
_FLOATS = frozenset({Datatype.FP32, Datatype.FP16, Datatype.BF16})


class Scored(NamedTuple):
    """A class: its label, empty if it has none, and its score."""

    label: str
    score: float


def classes_of(
    response: InferResponse, signature: Signature, count: int, *, doubles: bool = False
) -> list[list[Scored]]:
    """The classes of each of ``count`` examples, in the order of the model; ``doubles``: the answer carries
    scores of 64 bits. Raises INVALID_TENSOR in the words of the original server."""
    outputs = {tensor.name: tensor for tensor in response.outputs}
    classes, scores = outputs.get(_CLASSES), outputs.get(_SCORES)
    if classes is None and scores is None:
        scores = _only(response, "scores")
    spec = None if scores is None else signature.output_names.get(scores.name)
    labels = spec.labels if spec else ()
    names = None if classes is None else _matrix(_CLASSES, classes, count, frozenset({Datatype.BYTES}))
    values = None
    if scores is not None:
        values = _matrix(_SCORES, scores, count, _FLOATS | ({Datatype.FP64} if doubles else set()))
    if names is not None and values is not None and names.shape != values.shape:
        raise invalid_tensor(
            f"Tensors class and score should match in dim_size(1). Got {names.shape[1]} vs. {values.shape[1]}"
        )
    width = (values if values is not None else names).shape[1]  # type: ignore[union-attr]
    return [
        [
            Scored(
                _text(names[row, place])
                if names is not None
                else labels[place]
                if place < len(labels)
                else "",
                float(values[row, place]) if values is not None else 0.0,
            )
            for place in range(width)
        ]
        for row in range(count)
    ]


def regressions_of(response: InferResponse, count: int, *, doubles: bool = False) -> list[float]:
    """The value of each of ``count`` examples. Raises as :func:`classes_of`."""
    outputs = {tensor.name: tensor for tensor in response.outputs}
    tensor = outputs.get(_OUTPUTS) or _only(response, "regression outputs")
    if tensor.shape not in ((count,), (count, 1)):
        raise invalid_tensor(
            f"Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
            f"{list(tensor.shape)}"
        )
    if tensor.datatype not in _FLOATS and not (doubles and tensor.datatype is Datatype.FP64):
        raise invalid_tensor(f"Expected output Tensor of DT_FLOAT. Got: {NAME_OF[tensor.datatype]}")
    return [float(value) for value in tensor.numpy().reshape(-1)]


def _only(response: InferResponse, what: str) -> Tensor:
    if len(response.outputs) != 1:
        raise invalid_tensor(f"Expected one or two output Tensors, found {len(response.outputs)}: no {what}")
    return response.outputs[0]


def _matrix(name: str, tensor: Tensor, count: int, allowed: frozenset[Datatype]) -> NDArray[Any]:
    if len(tensor.shape) != 2:
        _refuse(f"Expected Tensor shape: [batch_size num_classes] but got {list(tensor.shape)}")
    if tensor.datatype not in allowed:
        wanted = "DT_STRING" if Datatype.BYTES in allowed else "DT_FLOAT"
        _refuse(f"Expected {name} Tensor of {wanted}. Got: {NAME_OF[tensor.datatype]}")
    if tensor.shape[0] != count:
        _refuse(f"Expected {name} output batch size of {count}. Got: {tensor.shape[0]}")
    return tensor.numpy()


def _refuse(words: str) -> NoReturn:
    raise invalid_tensor(words)


def _text(label: bytes) -> str:
    try:
        return label.decode()
    except UnicodeDecodeError:
        raise invalid_tensor(f"the label {label!r} of a class is not UTF-8") from None
