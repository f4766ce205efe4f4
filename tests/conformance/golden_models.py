"""The models that the Triton recordings were made with, served by our runtime.

They are Python models for Triton, and the runtime has no Python backend: the one here exists for the
replay alone. It runs ``1/model.py`` with a stand-in for ``triton_python_backend_utils`` as large as those
models need. Everything else is the real runtime: reading ``config.pbtxt``, choosing versions, checking
requests, answering.
"""

from __future__ import annotations

import functools
import json
import runpy
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime.backends import BACKENDS, Backend
from runtime.model import LocalModel
from runtime.model_config import LoadError, ModelConfig
from runtime.repository import find_models, load_models
from schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    Readiness,
    Signature,
    Tensor,
)

FOLDER = Path(__file__).parent.parent / "golden" / "oip" / "model_repository"

BACKEND = Backend(__name__, "python", "model.py", inline=True)

NOT_LOADED = ("not_loaded", "broken")
"""The models that the recorded server did not load at first."""

_REQUEST: ContextVar[InferRequest] = ContextVar("request being answered")


# --- what the models see


class PbTensor:
    """A tensor to a model. It travels as a tensor of the IR, which NumPy has no BF16 array for."""

    def __init__(self, name: str, array: np.ndarray[Any, Any]) -> None:
        self.tensor = Tensor.from_numpy(name, array)

    @classmethod
    def over(cls, tensor: Tensor) -> PbTensor:
        made = cls.__new__(cls)
        made.tensor = tensor
        return made

    def as_numpy(self) -> np.ndarray[Any, Any]:
        return self.tensor.numpy()

    def to_dlpack(self) -> Tensor:
        return self.tensor

    @classmethod
    def from_dlpack(cls, name: str, capsule: Tensor) -> PbTensor:
        return cls.over(capsule.renamed(name))


@dataclass
class PbRequest:
    """A request to a model: the tensors that it was given, and what came with them."""

    tensors: tuple[Tensor, ...]
    outputs: tuple[str, ...]
    asked: InferRequest

    def inputs(self) -> list[PbTensor]:
        return [PbTensor.over(tensor) for tensor in self.tensors]

    def parameters(self) -> str:
        return json.dumps(dict(self.asked.parameters))

    def request_id(self) -> str:
        return self.asked.id

    def correlation_id(self) -> int | str:
        return self.asked.sequence.id if self.asked.sequence else 0

    def flags(self) -> int:
        sequence = self.asked.sequence
        return sequence.start + 2 * sequence.end if sequence else 0

    def timeout(self) -> int:
        return self.asked.timeout_us

    def requested_output_names(self) -> tuple[str, ...]:
        return self.outputs


@dataclass
class PbResponse:
    """A model's answer to one request."""

    output_tensors: list[PbTensor] = field(default_factory=list)
    error: Exception | None = None


def _get_input_tensor_by_name(request: PbRequest, name: str) -> PbTensor | None:
    return next((given for given in request.inputs() if given.tensor.name == name), None)


def _utils() -> types.ModuleType:
    module = types.ModuleType("triton_python_backend_utils")
    module.Tensor = PbTensor  # type: ignore[attr-defined]
    module.InferenceResponse = PbResponse  # type: ignore[attr-defined]
    module.TritonError = Exception  # type: ignore[attr-defined]
    module.get_input_tensor_by_name = _get_input_tensor_by_name  # type: ignore[attr-defined]
    return module


# --- what the runtime sees


class PythonInstance:
    """An ``Instance`` that is a Triton Python model."""

    signature = None

    def __init__(self, name: str, model: Any) -> None:
        self._name = name
        self._model = model

    def run(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> tuple[Tensor, ...]:
        request = PbRequest(inputs, outputs, _REQUEST.get())
        try:
            with np.errstate(all="ignore"):
                (response,) = self._model.execute([request])
        except Exception as error:
            raise InferenceError(
                ErrorCode.MODEL_FAILED,
                f"Failed to process the request(s) for model '{self._name}_0', message: "
                f"{type(error).__name__}: {error}",
            ) from error
        if response.error is not None:
            raise InferenceError(ErrorCode.MODEL_FAILED, str(response.error))
        made = {given.tensor.name: given.tensor for given in response.output_tensors}
        return tuple(made[name] for name in outputs)

    def close(self) -> None:
        """Nothing to free."""


def load(path: Path, config: ModelConfig) -> PythonInstance:
    """The model in file ``path``: the ``load`` of :data:`BACKEND`."""
    try:
        model = runpy.run_path(str(path))["TritonPythonModel"]()
    except Exception as error:
        raise LoadError(f"{path}: {error}") from error
    datatypes = [f"TYPE_{spec.datatype.value}" for spec in config.inputs]
    model.initialize({"model_config": json.dumps({"input": [{"data_type": name} for name in datatypes]})})
    return PythonInstance(config.name, model)


class GoldenModel:
    """A ``Target`` over a local model, which lets its instance see the request around the tensors."""

    def __init__(self, model: LocalModel) -> None:
        self.name = model.name
        self._model = model

    async def infer(self, request: InferRequest) -> InferResponse:
        token = _REQUEST.set(request)
        try:
            return await self._model.infer(request)
        finally:
            _REQUEST.reset(token)

    async def signature(self, version: str = "") -> Signature:
        return await self._model.signature(version)

    async def metadata(self, version: str = "") -> ModelMetadata:
        return await self._model.metadata(version)

    async def ready(self, version: str = "") -> Readiness:
        return await self._model.ready(version)

    async def close(self) -> None:
        await self._model.close()


@contextmanager
def _backend() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BACKENDS, "python", BACKEND)
        patch.setitem(sys.modules, "triton_python_backend_utils", _utils())
        yield


@functools.cache
def golden_models() -> tuple[dict[str, GoldenModel], dict[str, str]]:
    """The models as the recorded server had them at first, and why others could not be loaded."""
    with _backend():
        sources = [source for source in find_models(FOLDER) if source.name not in NOT_LOADED]
        loaded = load_models(sources, threads=1)
    return {name: GoldenModel(model) for name, model in loaded.models.items()}, loaded.failed
