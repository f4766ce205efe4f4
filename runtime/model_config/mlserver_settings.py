"""Reads ``model-settings.json``, the configuration of a model for MLServer.

The fields are those of ``ModelSettings`` in mlserver/settings.py. MLServer checks neither requests nor models
against ``inputs`` and ``outputs``, so a single input lends its name and datatype, several are columns, and
outputs are the model's own. ``max_batch_size`` is the number of requests in a batch, of any number of rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import orjson

from interlingua.runtime.model_config.config import LoadError

SETTINGS_FILENAME = "model-settings.json"

BACKEND_OF_IMPLEMENTATION: dict[str, str] = {
    "mlserver_sklearn.SKLearnModel": "sklearn",
    "mlserver_xgboost.XGBoostModel": "xgboost",
    "mlserver_lightgbm.LightGBMModel": "lightgbm",
}
"""The backends by MLServer's names for its runtimes."""

_VERSION = re.compile(r"v?([1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """An input: its ``datatype`` is a name of the Open Inference Protocol, ``dims`` exclude the batch."""

    name: str
    datatype: str
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The settings in a model folder. ``file`` is the model file, relative to the folder, or a folder with
    it, empty for the model folder itself. ``version`` is 0 if the settings state no number, ``version_name``
    is the text if it is more than a number. Without batches ``batch_requests`` and ``batch_secs`` are 0.
    ``default_output`` is empty for that of the backend."""

    name: str
    backend: str
    file: str
    version: int
    version_name: str
    inputs: tuple[TensorMetadata, ...]
    batch_requests: int
    batch_secs: float
    default_output: str


def stated_name(folder: Path) -> str:
    """The name that the settings in ``folder`` state; empty without any, or if they are unreadable."""
    try:
        name = _document(folder / SETTINGS_FILENAME).get("name")
    except (LoadError, FileNotFoundError):
        return ""
    return name if isinstance(name, str) else ""


def read_settings(folder: Path) -> ModelSettings | None:
    """The settings in model folder ``folder``, None without any. Raises ``LoadError`` naming the file and the
    field: another implementation than of the backends, a file outside of the folder, a wrong type."""
    path = folder / SETTINGS_FILENAME
    try:
        document = _document(path)
    except FileNotFoundError:
        return None
    try:
        return _read(document)
    except (TypeError, ValueError) as error:
        raise LoadError(f"{path}: {error}") from error


def _document(path: Path) -> Mapping[str, Any]:
    """Raises ``FileNotFoundError``, and ``LoadError`` for anything else."""
    try:
        document = orjson.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(path) from error
    except (OSError, orjson.JSONDecodeError) as error:
        raise LoadError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise LoadError(f"{path}: is no object")
    return document


def _read(document: Mapping[str, Any]) -> ModelSettings:
    parameters = _typed(document, "parameters", dict) or {}
    extra = _typed(parameters, "extra", dict) or {}
    implementation = _typed(document, "implementation", str) or ""
    backend = BACKEND_OF_IMPLEMENTATION.get(implementation)
    if backend is None:
        raise ValueError(
            f"implementation '{implementation}' is not one of {', '.join(BACKEND_OF_IMPLEMENTATION)}"
        )
    requests = _typed(document, "max_batch_size", int) or 0
    secs = float(_typed(document, "max_batch_time", int | float) or 0)
    # MLServer batches only with both
    batches = requests > 1 and secs > 0
    stated = _typed(parameters, "version", str) or ""
    version = _VERSION.fullmatch(stated)
    return ModelSettings(
        _typed(document, "name", str) or "",
        backend,
        _file(_typed(parameters, "uri", str) or ""),
        int(version[1]) if version else 0,
        "" if version and version[1] == stated else stated,
        tuple(_tensor(tensor) for tensor in _typed(document, "inputs", list) or ()),
        requests if batches else 0,
        secs if batches else 0.0,
        _typed(extra, "predict_fn", str) or "",
    )


def _file(uri: str) -> str:
    parts = urlsplit(uri)
    path = PurePosixPath(parts.path)
    outside = path.is_absolute() or ".." in path.parts or "\0" in uri
    if parts.scheme not in ("", "file") or parts.netloc or outside:
        raise ValueError(f"parameters.uri '{uri}' is not a path in the model's folder")
    return "" if path == PurePosixPath() else str(path)


def _tensor(stated: Any) -> TensorMetadata:
    if not isinstance(stated, dict):
        raise TypeError("inputs: has an item that is no object")
    shape = _typed(stated, "shape", list) or []
    if not all(isinstance(size, int) for size in shape):
        raise TypeError("inputs: shape has an item that is no integer")
    return TensorMetadata(
        _typed(stated, "name", str) or "",
        _typed(stated, "datatype", str) or "",
        tuple(size if size > 0 else -1 for size in shape[1:]),
    )


def _typed(document: Mapping[str, Any], key: str, kind: Any) -> Any:
    value = document.get(key)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise TypeError(f"{key} has the wrong type")
    return value
