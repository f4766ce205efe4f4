"""Recognizes a model of XGBoost by its first bytes."""

from __future__ import annotations

import re
from pathlib import Path

from interlingua.runtime.model_config.config import LoadError, ModelConfig

_JSON = re.compile(rb'\s*\{\s*"(learner|version)"\s*:')
_UBJSON = re.compile(rb"\{[LlIiU].{0,8}(learner|version)", re.DOTALL)
"""The first key of the object, after the length of its name."""

_HEAD_BYTES = 256


def is_model(path: Path) -> bool:
    """Whether the file at ``path`` begins like a model in JSON or UBJSON."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return bool(_JSON.match(head) or _UBJSON.match(head))


def examine(path: Path, config: ModelConfig) -> None:
    """Raise ``LoadError`` if the file at ``path`` is not a model."""
    if not is_model(path):
        raise LoadError(
            f"{path}: is not an XGBoost model in JSON or UBJSON; booster.save_model('model.ubj') writes one"
        )
