"""Echoes each input as the output at the same place: any datatype, any bytes, no copy.

For BYTES that are not text, which ONNX Runtime cannot carry, and for measuring everything around a model. It
has no model file, so the configuration declares its inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from interlingua.runtime.model_config.config import LoadError, ModelConfig
from interlingua.runtime.models.reshape import Reshape
from interlingua.schemas import Tensor, TensorSpec


class IdentityInstance:
    """An ``Instance`` whose i-th output is its i-th input under the output's name."""

    signature = None
    bounded = False

    def __init__(self, sources: dict[str, str]) -> None:
        self._sources = sources

    def run(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> tuple[Tensor, ...]:
        sources = {}
        for tensor in inputs:
            sources[tensor.name] = tensor
        return tuple([sources[self._sources[name]].renamed(name) for name in outputs])

    def close(self) -> None:
        """Nothing to free."""


def load(path: Path, config: ModelConfig) -> IdentityInstance:
    """Pair the declared inputs with the declared outputs. Raises ``LoadError`` without any, for a pair that
    differs in datatype or shape, and for an optional input, which would leave an output without a value."""
    if not config.inputs:
        raise LoadError(f"{path}: the identity backend needs a configuration that states inputs and outputs")
    if len(config.inputs) != len(config.outputs):
        raise LoadError(
            f"{path}: the identity backend needs as many outputs as inputs, "
            f"got {len(config.inputs)} inputs and {len(config.outputs)} outputs"
        )
    for source, target in zip(config.inputs, config.outputs, strict=True):
        if source.optional:
            raise LoadError(f"{path}: the identity backend cannot echo the optional input '{source.name}'")
        sources = _inner(source, config.input_reshapes)
        made = _inner(target, config.output_reshapes)
        if (source.datatype, sources) != (target.datatype, made):
            raise LoadError(
                f"{path}: the identity backend echoes input '{source.name}' "
                f"({source.datatype.value} {list(sources)}) as output '{target.name}', "
                f"which is declared {target.datatype.value} {list(made)}"
            )
    return IdentityInstance(
        {target.name: source.name for source, target in zip(config.inputs, config.outputs, strict=True)}
    )


def _inner(spec: TensorSpec, reshapes: Mapping[str, Reshape]) -> tuple[int, ...]:
    """The shape that the model sees."""
    return reshapes[spec.name].inner if spec.name in reshapes else spec.shape
