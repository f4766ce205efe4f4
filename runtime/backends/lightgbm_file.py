"""Recognizes a model of LightGBM by its first line."""

from __future__ import annotations

from pathlib import Path

from interlingua.runtime.model_config.config import LoadError, ModelConfig

_FIRST_LINE = b"tree"


def is_model(path: Path) -> bool:
    """Whether the file at ``path`` begins like a model in text."""
    with path.open("rb") as file:
        return file.readline(len(_FIRST_LINE) + 2).rstrip() == _FIRST_LINE


def examine(path: Path, config: ModelConfig) -> None:
    """Raise ``LoadError`` if the file at ``path`` is not a model."""
    if not is_model(path):
        raise LoadError(f"{path}: is not a LightGBM text model; booster.save_model('model.txt') writes one")
