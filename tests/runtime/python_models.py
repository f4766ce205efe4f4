"""Writes model folders for the Python backend and loads them."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interlingua.runtime.backends.python import PythonInstance
from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.python_worker.process import Worker
from interlingua.runtime.repository.files import ModelSource, load_model
from interlingua.schemas import Datatype, InferenceError, InferRequest, InferResponse, Tensor

INT32 = """
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
"""
DECOUPLED = INT32 + "model_transaction_policy { decoupled: true }\n"

HEAD = """
import asyncio, os, time, threading
import numpy as np
import triton_python_backend_utils as pb

def given(request):
    return pb.get_input_tensor_by_name(request, "IN").as_numpy()

def answer(array, **more):
    return pb.InferenceResponse([pb.Tensor("OUT", np.asarray(array, np.int32))], **more)

FINAL = pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL

class TritonPythonModel:
"""

ECHO = """
def execute(self, requests):
    return [answer(given(request)) for request in requests]
"""


def python_model(folder: Path, body: str, config: str | None = INT32, name: str = "m") -> ModelSource:
    """A model whose class has the methods in ``body``; ``config`` None writes no configuration."""
    version = folder / name / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(HEAD + textwrap.indent(textwrap.dedent(body), "    "))
    if config is not None:
        (folder / name / "config.pbtxt").write_text(f'backend: "python"\n{config}')
    return ModelSource(name, folder / name)


def loaded(folder: Path, body: str, config: str | None = INT32) -> LocalModel:
    """The same, loaded."""
    return load_model(python_model(folder, body, config))


def request(*values: int, **more: Any) -> InferRequest:
    """Asks for IN with these numbers."""
    return InferRequest("m", (Tensor.from_numpy("IN", np.array(values, np.int32)),), **more)


def numbers(response: InferResponse) -> list[int]:
    """What came as OUT."""
    (output,) = response.outputs
    assert (output.name, output.datatype) == ("OUT", Datatype.INT32)
    return output.numpy().tolist()


async def failure(model: LocalModel, asked: InferRequest) -> InferenceError:
    """The error that ``asked`` is answered with."""
    with pytest.raises(InferenceError) as caught:
        await model.infer(asked)
    return caught.value


def instance(model: LocalModel) -> PythonInstance:
    """What a model with one version runs on."""
    (version,) = model.loaded.values()
    assert isinstance(version.instance, PythonInstance)
    return version.instance


def worker(model: LocalModel) -> Worker:
    """Its first worker, which is there."""
    found = instance(model)._workers[0]
    assert found is not None
    return found
