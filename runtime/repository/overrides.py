"""Files that a client sends to be loaded instead of a model's own.

They are written to a temporary folder, laid out like a model's, which lives as long as the loaded model.
Paths come from a client, so none may lead out of the folder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from interlingua.runtime.model_config.config import LoadError

SentFiles = tempfile.TemporaryDirectory[str]


def write_files(name: str, files: Mapping[str, bytes]) -> SentFiles:
    """A folder with ``files`` by their path in it. Blocks. Raises ``LoadError`` naming a path that leads out
    of the folder or is not writable, after removing the folder."""
    folder = tempfile.TemporaryDirectory(prefix="interlingua-model-")
    try:
        for path, content in files.items():
            _write(Path(folder.name), path, content)
    except LoadError as error:
        folder.cleanup()
        raise LoadError(f"model '{name}': {error}") from error
    return folder


def is_inside(path: str) -> bool:
    """Whether ``path`` names something below the folder that it is relative to."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\0" not in path


def _write(folder: Path, path: str, content: bytes) -> None:
    if not is_inside(path):
        raise LoadError(f"file '{path}' is not in the model's folder")
    try:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    except (OSError, ValueError) as error:
        raise LoadError(f"file '{path}' cannot be written: {error}") from error
