"""The models of the matrix: the same few on every engine, each small enough to say what it does with its name.

``same_D`` answers with its input, of datatype D. ``make_D`` turns floats into D. ``adder`` adds the number of
its version, ``total`` what its sequence has sent, ``add_sub`` tells two inputs and two outputs apart.
``tell`` says what of a request has reached it, and ``count`` answers more than once; both are Python. ``map`` and
``maps`` answer with the entries of a map, the latter with all that a map can hold; the identity backend alone has it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import numpy_helper

from interlingua.protocols.registry import bindings
from interlingua.runtime.backends import BACKENDS
from interlingua.schemas import Datatype, Signature, TensorSpec
from tests.runtime.onnx_models import ONNX_TYPES, node, value, write

NOT_EVERYWHERE = tuple(
    datatype
    for datatype in Datatype
    if any(datatype not in each.capability.exact for each in bindings().values())
)
"""The datatypes that some dialect cannot send as they are."""


def _one(given: Datatype, *shape: int, made: Datatype | None = None, max_batch_size: int = 0) -> Signature:
    """``x`` to ``y``, of the same shape and, unless another is ``made``, datatype."""
    inputs, outputs = TensorSpec("x", given, shape), TensorSpec("y", made or given, shape)
    return Signature((inputs,), (outputs,), max_batch_size)


def _named(*names: str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, Datatype.INT32, (-1, 3)) for name in names)


MAPS: Mapping[str, Datatype] = {
    "s_s": Datatype.BYTES,
    "s_b": Datatype.BYTES,
    "s_i32": Datatype.INT32,
    "s_i64": Datatype.INT64,
    "s_f": Datatype.FP32,
    "s_d": Datatype.FP64,
}
"""The maps of a grps message, and what they hold."""

NARROW_KEYS: Mapping[Datatype, tuple[str, str]] = {
    datatype: (name, f"narrow_{datatype.value}")
    for name, datatypes in {
        "s_i32": (Datatype.BOOL, Datatype.UINT8, Datatype.UINT16, Datatype.INT8, Datatype.INT16),
        "s_i64": (Datatype.UINT32,),
        "s_f": (Datatype.FP16, Datatype.BF16),
    }.items()
    for datatype in datatypes
}
"""The map and the key of an entry for each datatype that has no map of its own."""


def _scalars(**datatypes: Datatype) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, datatype, ()) for name, datatype in datatypes.items())


def _numbers(suffix: str = "") -> tuple[TensorSpec, ...]:
    kinds = {"i": Datatype.INT32, "n": Datatype.INT64, "f": Datatype.FP32, "d": Datatype.FP64}
    return _scalars(**{name + suffix: datatype for name, datatype in kinds.items()})


_EVERYTHING = _scalars(
    **{key: datatype for datatype, (_, key) in NARROW_KEYS.items()},
    **{f"gmap.{name}.{key}": datatype for name, datatype in MAPS.items() for key in ("key", "")},
    **{"gmap.s_s.gmap.s_i32.key": Datatype.BYTES},
)

SUBJECTS: Mapping[str, Signature] = {
    **{f"same_{datatype.value}": _one(datatype, -1) for datatype in Datatype},
    **{f"make_{datatype.value}": _one(Datatype.FP32, -1, made=datatype) for datatype in NOT_EVERYWHERE},
    "scalar": _one(Datatype.FP32),
    "cube": _one(Datatype.INT16, -1, -1, -1),
    "add_sub": Signature(_named("a", "b"), _named("sum", "difference"), max_batch_size=4),
    "fails": _one(Datatype.FP32, -1),
    "adder": _one(Datatype.INT32, -1),
    "total": _one(Datatype.INT32, -1, 1, max_batch_size=2),
    "tell": Signature(
        (TensorSpec("x", Datatype.INT32, (-1,)),),
        (TensorSpec("told", Datatype.BYTES, (1,)), TensorSpec("spare", Datatype.INT32, (1,))),
    ),
    "count": _one(Datatype.INT32, 1),
    "map": Signature(_numbers(), _numbers("_out")),
    "maps": Signature(_EVERYTHING, _EVERYTHING),
}
"""What each model takes and gives. That of an upstream is not told by everybody, so it may have to be stated."""

_IN_PYTHON_ALONE = frozenset({"tell", "count"})
_FAR_ALONE = frozenset({"maps"})
_STATE = """
sequence_batching { state { input_name: "sum" output_name: "next" data_type: TYPE_INT32 dims: 1 }
                    max_sequence_idle_microseconds: 60000000 }
"""
_CONTROLS = """
sequence_batching { max_sequence_idle_microseconds: 60000000
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
  control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } } }
"""
_ALL_VERSIONS = "version_policy { all {} }\n"


def subjects(backend: str) -> list[str]:
    """The names of the models that a backend can have."""
    carries = BACKENDS[backend].capability.carries
    return [
        name
        for name, signature in SUBJECTS.items()
        if (backend == "python" or name not in _IN_PYTHON_ALONE)
        and name not in _FAR_ALONE
        and all(carries(spec.datatype) for spec in (*signature.inputs, *signature.outputs))
    ]


def written(folder: Path, backend: str, names: Iterable[str]) -> dict[str, Any]:
    """The options of these models of ``backend``, by name; their files are written to ``folder``."""
    return {name: _WRITERS[backend](folder / f"{backend}_{name}", name) for name in names}


def signature_options(name: str) -> dict[str, Any]:
    """The signature of a model as a configuration states it."""
    signature = SUBJECTS[name]

    def tensors(specs: Iterable[TensorSpec]) -> list[dict[str, Any]]:
        return [{"name": s.name, "datatype": s.datatype.value, "shape": list(s.shape)} for s in specs]

    return {
        "inputs": tensors(signature.inputs),
        "outputs": tensors(signature.outputs),
        "max_batch_size": signature.max_batch_size,
    }


def _model(folder: Path, name: str, backend: str, config: str) -> dict[str, Any]:
    head = f'backend: "{backend}"\nmax_batch_size: {SUBJECTS[name].max_batch_size}\n'
    (folder / "config.pbtxt").write_text(head + config)
    return {"backend": backend, "path": str(folder), "signature": signature_options(name)}


def _versions(name: str) -> tuple[int, ...]:
    return (1, 2) if name == "adder" else (1,)


# --- ONNX Runtime


def _onnx(folder: Path, name: str) -> dict[str, Any]:
    signature = SUBJECTS[name]
    inputs, outputs = list(signature.inputs), list(signature.outputs)
    if name == "total":
        inputs.append(replace(inputs[0], name="sum"))
        outputs.append(replace(outputs[0], name="next"))
    for version in _versions(name):
        constant = {"fails": np.array([3, 5]), "adder": np.array([version], np.int32)}.get(name)
        write(
            folder / str(version) / "model.onnx",
            _nodes(name, outputs[0].datatype),
            _values(inputs),
            _values(outputs),
            [] if constant is None else [numpy_helper.from_array(constant, "c")],
        )
    return _model(folder, name, "onnxruntime", _STATE if name == "total" else _ALL_VERSIONS)


def _nodes(name: str, made: Datatype) -> list[Any]:
    if name.startswith("make_"):
        return [node("Cast", ["x"], ["y"], to=ONNX_TYPES[made])]
    return {
        "add_sub": [node("Add", ["a", "b"], ["sum"]), node("Sub", ["a", "b"], ["difference"])],
        "fails": [node("Reshape", ["x", "c"], ["y"])],
        "adder": [node("Add", ["x", "c"], ["y"])],
        "total": [node("Add", ["x", "sum"], ["y"]), node("Identity", ["y"], ["next"])],
        "map": [node("Identity", [spec.name], [f"{spec.name}_out"]) for spec in _numbers()],
    }.get(name, [node("Identity", ["x"], ["y"])])


def _values(specs: Iterable[TensorSpec]) -> list[Any]:
    return [
        value(
            spec.name,
            spec.datatype,
            [f"n{place}" if side < 0 else side for place, side in enumerate(spec.shape)],
        )
        for spec in specs
    ]


# --- PyTorch


def _torch(folder: Path, name: str) -> dict[str, Any]:
    import torch

    class Same(torch.nn.Module):
        def forward(self, x):
            return x

    class Make(torch.nn.Module):
        def __init__(self, dtype: torch.dtype) -> None:
            super().__init__()
            self.dtype = dtype

        def forward(self, x):
            return x.to(self.dtype)

    class AddSub(torch.nn.Module):
        def forward(self, a, b):
            return a + b, a - b

    class Map(torch.nn.Module):
        def forward(self, i, n, f, d):
            return i, n, f, d

    class Total(torch.nn.Module):
        def forward(self, x, sum):
            return x + sum, x + sum

    class Fails(torch.nn.Module):
        def forward(self, x):
            return x.reshape(3, 5)

    class Adder(torch.nn.Module):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def forward(self, x):
            return x + self.number

    made = SUBJECTS[name].outputs[0].datatype
    for version in _versions(name):
        if name.startswith("make_"):
            module: Any = Make(getattr(torch, made.dtype.name))
        elif name == "adder":
            module = Adder(version)
        else:
            module = {"add_sub": AddSub, "map": Map, "total": Total, "fails": Fails}.get(name, Same)()
        path = folder / str(version) / "model.pt"
        path.parent.mkdir(parents=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.jit.script(module).save(str(path))
    return _model(folder, name, "torch", _STATE if name == "total" else _ALL_VERSIONS)


# --- Python

_HEAD = """
import json
import ml_dtypes  # names bfloat16
import numpy as np
import triton_python_backend_utils as pb

def given(request, name="x"):
    return pb.get_input_tensor_by_name(request, name)

def answer(**outputs):
    return pb.InferenceResponse([pb.Tensor(name, array) for name, array in outputs.items()])

class TritonPythonModel:
    def initialize(self, args):
        self.version = int(args["model_version"])
        self.sums = {}

    def execute(self, requests):
        return [self.one(request) for request in requests]
"""
_BODIES = {
    "echo": """
    def one(self, request):
        return answer(y=given(request).as_numpy())
""",
    "make": """
    def one(self, request):
        return answer(y=given(request).as_numpy().astype("{dtype}"))
""",
    "add_sub": """
    def one(self, request):
        a, b = given(request, "a").as_numpy(), given(request, "b").as_numpy()
        return answer(sum=a + b, difference=a - b)
""",
    "map": """
    def one(self, request):
        return answer(**{name + "_out": given(request, name).as_numpy() for name in "infd"})
""",
    "fails": """
    def one(self, request):
        return answer(y=given(request).as_numpy().reshape(3, 5))
""",
    "adder": """
    def one(self, request):
        return answer(y=given(request).as_numpy() + np.int32(self.version))
""",
    "total": """
    def one(self, request):
        key = given(request, "ID").as_numpy().item()
        before = 0 if given(request, "START").as_numpy().item() else self.sums[key]
        self.sums[key] = before + given(request).as_numpy().item()
        return answer(y=np.array([[self.sums[key]]], np.int32))
""",
    "tell": """
    def one(self, request):
        told = {
            "id": request.request_id(),
            "sequence": request.correlation_id(),
            "parameters": json.loads(request.parameters() or "{}"),
            "outputs": sorted(request.requested_output_names()),
            "timeout_us": request.timeout(),
        }
        outputs = {"told": np.array([json.dumps(told)], object), "spare": np.array([7], np.int32)}
        return pb.InferenceResponse(
            [pb.Tensor(name, outputs[name]) for name in request.requested_output_names()],
            parameters={"said": "yes", "times": 3},
        )
""",
}
_COUNT = """
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            number = pb.get_input_tensor_by_name(request, "x").as_numpy().item()
            for each in range(number):
                sender.send(pb.InferenceResponse([pb.Tensor("y", np.array([each], np.int32))]))
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def _python(folder: Path, name: str) -> dict[str, Any]:
    signature = SUBJECTS[name]
    body = _BODIES.get(name) or _BODIES["make" if name.startswith("make_") else "echo"]
    if name.startswith("make_"):
        body = body.format(dtype=signature.outputs[0].datatype.dtype.name)
    for version in _versions(name):
        (folder / str(version)).mkdir(parents=True)
        (folder / str(version) / "model.py").write_text(_COUNT if name == "count" else _HEAD + body)
    config = _CONTROLS if name == "total" else _ALL_VERSIONS
    if name == "count":
        config = "model_transaction_policy { decoupled: true }\n"
    return _model(folder, name, "python", config)


def _echo(folder: Path, name: str) -> dict[str, Any]:
    return {"backend": "identity", "signature": signature_options(name)}


_WRITERS = {"onnxruntime": _onnx, "torch": _torch, "python": _python, "identity": _echo}
