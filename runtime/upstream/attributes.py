"""What a configuration adds to the signature of an upstream's model.

Some attributes of tensors are on no wire: class labels are in files of the server, and few dialects state the
memory layout of images. The names are those of our clients.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from interlingua.runtime.model_config.message import serialized
from interlingua.schemas import Signature
from interlingua.schemas.model_config import MODEL_CONFIG

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attributes:
    """``labels`` by output, in index order, and ``formats`` by input, as in ``inference.ModelConfig``:
    ``FORMAT_NHWC`` or ``FORMAT_NCHW``."""

    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)

    def labelled(self, model: str, signature: Signature) -> Signature:
        """The ``signature`` of ``model`` with the labels. Logs attributes without a tensor."""
        unknown = [
            *(f"labels.{name}" for name in self.labels if name not in signature.output_names),
            *(f"format.{name}" for name in self.formats if name not in signature.input_names),
        ]
        if unknown and (signature.inputs or signature.outputs):
            facts = {"model": model, "keys": ", ".join(unknown)}
            _log.warning("attributes of unknown tensors", extra={"facts": facts})
        if not self.labels:
            return signature
        outputs = (
            replace(spec, labels=self.labels.get(spec.name, spec.labels)) for spec in signature.outputs
        )
        return replace(signature, outputs=tuple(outputs))

    def stated(self) -> bytes:
        """The formats as a serialized ``inference.ModelConfig`` without other fields."""
        config = MODEL_CONFIG()
        for name, form in self.formats.items():
            config.input.add(name=name, format=form)
        return serialized(config)

    def write(self, config: Any) -> None:
        """Write the formats to ``config``, an ``inference.ModelConfig`` in our clients' names."""
        for tensor in config.input:
            if tensor.name in self.formats:
                tensor.format = self.formats[tensor.name]


NO_ATTRIBUTES = Attributes()
