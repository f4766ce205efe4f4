"""Checks a file of PyTorch without PyTorch: whether it is a program, or only weights.

``torch.save`` and ``torch.jit.save`` write the same kind of archive; a program has code in it.
"""

from __future__ import annotations

import zipfile
from pathlib import Path, PurePosixPath

from interlingua.runtime.model_config.config import LoadError, ModelConfig

WEIGHTS_ADVICE = (
    "torch.jit.script(module).save(…) writes a program to model.pt, "
    "torch.export.save(torch.export.export(module, …), …) one to model.pt2"
)
"""The advice for a file that ``torch.save`` has written."""

UNDECLARED = (
    "a TorchScript file does not declare its tensors, so a configuration must: `input` and `output` in "
    "config.pbtxt, or `signature`"
)
"""The error for a program without a configuration."""


def examine(path: Path, config: ModelConfig) -> None:
    """Raise ``LoadError`` if the file at ``path`` is not a program, or a program without declared tensors."""
    examine_file(path)
    if path.suffix != ".pt2" and not config.outputs:
        raise LoadError(f"{path}: {UNDECLARED}")


def examine_file(path: Path) -> None:
    """Raise ``LoadError`` if the file at ``path`` is not a program."""
    if not zipfile.is_zipfile(path):
        raise LoadError(f"{path}: is no program of PyTorch, or cut short; {WEIGHTS_ADVICE}")
    if path.suffix == ".pt2":
        return
    with zipfile.ZipFile(path) as archive:
        parts = [PurePosixPath(name).parts for name in archive.namelist()]
    inside = {part for _, *rest in filter(None, parts) for part in rest}
    if "data.pkl" in inside and not inside & {"code", "constants.pkl"}:
        raise LoadError(
            f"{path}: holds weights (a state_dict) or a pickled module, no program; {WEIGHTS_ADVICE}"
        )
