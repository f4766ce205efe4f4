"""Checks a file of scikit-learn without scikit-learn: a file of skops, or a permitted pickle."""

from __future__ import annotations

import zipfile
from pathlib import Path

from interlingua.runtime.model_config.config import LoadError, ModelConfig

SKOPS = ".skops"

PERMISSION = "`allow_pickle: true` of the model or the repository permits it, but not in files of a client"
"""What permits a file that may execute code."""

_SCHEMA = "schema.json"
"""The part of a file of skops that lists its types."""


def examine(path: Path, config: ModelConfig) -> None:
    """Raise ``LoadError`` for a file that is not what its suffix states, and for a pickle that ``config``
    does not permit. Every file that is not of skops counts as a pickle."""
    if path.suffix != SKOPS:
        if not config.allow_pickle:
            raise LoadError(
                f"{path}: is a pickle, which executes code when it is loaded; {PERMISSION}; "
                "skops.io.dump(model, 'model.skops') writes a file that executes none"
            )
        return
    if not zipfile.is_zipfile(path):
        raise LoadError(f"{path}: is not a skops file, or cut short")
    with zipfile.ZipFile(path) as archive:
        if _SCHEMA not in archive.namelist():
            raise LoadError(f"{path}: is not a skops file: it has no {_SCHEMA}")
