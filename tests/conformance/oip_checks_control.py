"""Checks of everything around inference: probes, metadata, models, statistics, settings, shared memory."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc
import ml_dtypes
import numpy as np
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from tests.conformance.oip_checks_infer import NUMBERS, A, B, addends, same
from tests.conformance.oip_client import WAIT_SECS, Client, check, refused
from tests.waiting import eventually

T = TypeVar("T")


def settled(look: Callable[[], T]) -> T:
    """What ``look`` sees twice in a row: a server may count after it has answered."""
    seen = [look()]

    def again() -> bool:
        time.sleep(0.05)
        seen.append(look())
        return seen[-1] == seen[-2]

    eventually(again)
    return seen[-1]


# --- probes and metadata


@check("live and ready")
def probes(client: Client) -> None:
    assert client.is_server_live() is True
    assert client.is_server_ready() is True


@check("readiness of a model")
def model_ready(client: Client) -> None:
    assert client.is_model_ready("simple") is True
    assert client.is_model_ready("simple", "1") is True


@check("readiness of an unknown model or version is false")
def model_not_ready(client: Client) -> None:
    assert client.is_model_ready("nothing_like_it") is False
    assert client.is_model_ready("simple", "42") is False


@check("grpc.health.v1 Check", "grpc")
def health_check(client: Client) -> None:
    with grpc.insecure_channel(client.server.grpc) as channel:
        answer = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=WAIT_SECS)
    assert answer == b"\x08\x01"


@check("grpc.health.v1 Watch", "grpc")
def health_watch(client: Client) -> None:
    with grpc.insecure_channel(client.server.grpc) as channel:
        call = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=WAIT_SECS)
        assert next(call) == b"\x08\x01"
        call.cancel()


@check("reflection", "grpc")
def reflection(client: Client) -> None:
    # field 7 asks for the services
    request = b"\x3a\x00"
    with grpc.insecure_channel(client.server.grpc) as channel:
        method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        answer = next(channel.stream_stream(method)(iter([request]), timeout=WAIT_SECS))
    assert b"inference.GRPCInferenceService" in answer


@check("server metadata")
def server_metadata(client: Client) -> None:
    metadata = client.get_server_metadata()
    assert metadata["name"] and metadata["version"]


@check("model metadata")
def model_metadata(client: Client) -> None:
    metadata = client.get_model_metadata("simple")
    assert metadata["name"] == "simple" and "1" in metadata["versions"] and metadata["platform"]
    for side, names in (("inputs", ("INPUT0", "INPUT1")), ("outputs", ("OUTPUT0", "OUTPUT1"))):
        for name, tensor in zip(names, metadata[side], strict=True):
            assert (tensor["name"], tensor["datatype"]) == (name, "INT32")
            assert [int(size) for size in tensor["shape"]] == [-1, 16]
    with refused("nothing_like_it"):
        client.get_model_metadata("nothing_like_it")


def _config(client: Client, *model: str) -> dict[str, Any]:
    answer = client.get_model_config(*model)
    return dict(answer if client.over_http else answer["config"])


@check("model configuration")
def model_config(client: Client) -> None:
    config = _config(client, "simple", "1")
    assert config["name"] == "simple" and config["max_batch_size"] == 8
    assert [(each["name"], each["data_type"]) for each in config["input"]] == [
        ("INPUT0", "TYPE_INT32"),
        ("INPUT1", "TYPE_INT32"),
    ]
    assert [int(size) for size in config["output"][1]["dims"]] == [16]
    with refused("nothing_like_it"):
        client.get_model_config("nothing_like_it")


@check("statistics of a model")
def statistics(client: Client) -> None:
    def counts() -> tuple[int, int, int]:
        [found] = client.get_inference_statistics("simple", "1")["model_stats"]
        assert (found["name"], found["version"]) == ("simple", "1")
        success = found["inference_stats"]["success"]
        return int(found["inference_count"]), int(success["count"]), int(success["ns"])

    client.ask("simple", *addends(client))
    before = settled(counts)
    client.ask("simple", *addends(client))
    after = settled(counts)
    assert after[0] == before[0] + 1 and after[1] == before[1] + 1 and after[2] > before[2]


@check("statistics of all models")
def all_statistics(client: Client) -> None:
    names = {found["name"] for found in client.get_inference_statistics()["model_stats"]}
    assert {"simple", "identity_fp32"} <= names
    with refused("nothing_like_it"):
        client.get_inference_statistics("nothing_like_it")


# --- models


def _states(client: Client) -> dict[str, str]:
    index = client.get_model_repository_index()
    entries = index if client.over_http else index.get("models", [])
    return {entry["name"]: entry.get("state", "") for entry in entries}


@check("repository index")
def repository_index(client: Client) -> None:
    states = _states(client)
    assert states["simple"] == "READY"
    assert states.get("not_loaded", "") != "READY"


@check("load and unload")
def load_and_unload(client: Client) -> None:
    assert not client.is_model_ready("not_loaded")
    client.load_model("not_loaded")
    try:
        assert client.is_model_ready("not_loaded")
        assert _states(client)["not_loaded"] == "READY"
    finally:
        client.unload_model("not_loaded")
    eventually(lambda: not client.is_model_ready("not_loaded"))


@check("load with another configuration")
def load_config(client: Client) -> None:
    tensor = {"data_type": "TYPE_INT32", "dims": [-1]}
    config = {
        "name": "not_loaded",
        "backend": "python",
        "max_batch_size": 4,
        "input": [{"name": "INPUT0", **tensor}],
        "output": [{"name": "OUTPUT0", **tensor}],
    }
    client.load_model("not_loaded", config=json.dumps(config))
    try:
        assert _config(client, "not_loaded")["max_batch_size"] == 4
    finally:
        client.unload_model("not_loaded")
    eventually(lambda: not client.is_model_ready("not_loaded"))


@check("load with files")
def load_files(client: Client) -> None:
    source = (
        "import triton_python_backend_utils as pb\n"
        "class TritonPythonModel:\n"
        "    def execute(self, requests):\n"
        "        return [pb.InferenceResponse([pb.Tensor('Y', pb.get_input_tensor_by_name(r, 'X').as_numpy() + 1)])\n"
        "                for r in requests]\n"
    )
    tensors = {"data_type": "TYPE_FP32", "dims": [-1]}
    config = {
        "name": "sent",
        "backend": "python",
        "input": [{"name": "X", **tensors}],
        "output": [{"name": "Y", **tensors}],
    }
    client.load_model("sent", config=json.dumps(config), files={"file:1/model.py": source.encode()})
    try:
        given = client.input("X", np.array([1, 2], np.float32), "FP32")
        assert client.ask("sent", given).as_numpy("Y").tolist() == [2, 3]
    finally:
        client.unload_model("sent", unload_dependents=True)
    eventually(lambda: not client.is_model_ready("sent"))


# --- settings


@check("trace settings")
def trace_settings(client: Client) -> None:
    def settings(model: str | None = None) -> dict[str, Any]:
        answer = client.get_trace_settings(model_name=model)
        if client.over_http:
            return dict(answer)
        # a gRPC client has every value as a list
        found = {name: value.get("value", [""]) for name, value in answer["settings"].items()}
        return {name: value if name == "trace_level" else value[0] for name, value in found.items()}

    before = settings()
    assert before["trace_level"] == ["OFF"]
    client.update_trace_settings(settings={"trace_rate": "500"})
    try:
        assert settings()["trace_rate"] == "500"
        client.update_trace_settings(model_name="simple", settings={"trace_count": "7"})
        assert settings("simple")["trace_count"] == "7"
        assert settings()["trace_count"] == before["trace_count"]
        client.update_trace_settings(model_name="simple", settings={"trace_count": None})
        assert settings("simple")["trace_count"] == before["trace_count"]
    finally:
        client.update_trace_settings(settings={"trace_rate": None})
    assert settings() == before


@check("log settings")
def log_settings(client: Client) -> None:
    def settings() -> dict[str, Any]:
        answer = client.get_log_settings()
        if client.over_http:
            return dict(answer)
        return {name: next(iter(value.values())) for name, value in answer["settings"].items()}

    before = settings()
    assert {"log_info", "log_warning", "log_error", "log_verbose_level", "log_format"} <= set(before)
    client.update_log_settings({"log_verbose_level": 1, "log_warning": not before["log_warning"]})
    try:
        now = settings()
        assert now["log_verbose_level"] == 1 and now["log_warning"] is not before["log_warning"]
    finally:
        client.update_log_settings({"log_verbose_level": 0, "log_warning": before["log_warning"]})
    assert settings() == before
    with refused():
        client.update_log_settings({"log_format": "no such format"})


# --- shared memory


@contextmanager
def region(client: Client, size: int, name: str = "") -> Iterator[tuple[str, Any]]:
    """A registered region of shared memory: its name, and the client's handle of it."""
    name = name or f"check_{os.getpid()}_{time.monotonic_ns()}"
    handle = shm.create_shared_memory_region(name, f"/{name}", size)
    try:
        client.register_system_shared_memory(name, f"/{name}", size)
        try:
            yield name, handle
        finally:
            eventually(lambda: _unregistered(client, name))
    finally:
        shm.destroy_shared_memory_region(handle)


def _unregistered(client: Client, name: str) -> bool:
    """Triton may hold a region for a moment after its answer."""
    try:
        client.unregister_system_shared_memory(name)
    except InferenceServerException as error:
        if "in use" in str(error):
            return False
        raise
    return True


def _regions(client: Client, kind: str = "system") -> set[str]:
    status = (
        client.get_system_shared_memory_status if kind == "system" else client.get_cuda_shared_memory_status
    )
    found = status()
    return {each["name"] for each in found} if client.over_http else set(found.get("regions", ()))


@check("system shared memory: register, status, unregister")
def shared_memory_regions(client: Client) -> None:
    with region(client, 64) as (name, _):
        assert name in _regions(client)
        [found] = (
            client.get_system_shared_memory_status(name)
            if client.over_http
            else client.get_system_shared_memory_status(name)["regions"].values()
        )
        assert (found["name"], found["key"], int(found["byte_size"])) == (name, f"/{name}", 64)
        with refused(name):
            client.register_system_shared_memory(name, f"/{name}", 64)
    assert name not in _regions(client)
    with refused("Unable to open shared memory region"):
        client.register_system_shared_memory("lost", "/nothing_like_it", 64)


@check("system shared memory: tensors in and out")
def shared_memory_tensors(client: Client) -> None:
    with region(client, 256) as (name, handle):
        shm.set_shared_memory_region(handle, [A, B])
        inputs = [client.module.InferInput(each, [1, 16], "INT32") for each in ("INPUT0", "INPUT1")]
        for number, each in enumerate(inputs):
            each.set_shared_memory(name, 64, number * 64)
        outputs = [client.output(each) for each in ("OUTPUT0", "OUTPUT1")]
        for number, each in enumerate(outputs):
            each.set_shared_memory(name, 64, 128 + number * 64)
        client.ask("simple", *inputs, outputs=outputs)
        same(shm.get_contents_as_numpy(handle, np.int32, [1, 16], 128), A + B)
        same(shm.get_contents_as_numpy(handle, np.int32, [1, 16], 192), A - B)
        # one there, the other here
        result = client.ask(
            "simple", inputs[0], addends(client)[1], outputs=[client.output("OUTPUT0"), outputs[1]]
        )
        same(result.as_numpy("OUTPUT0"), A + B)
    assert name not in _regions(client)


@check("system shared memory: every datatype")
def shared_memory_datatypes(client: Client) -> None:
    arrays: dict[str, Any] = {
        **{name: np.array([0, 1], dtype) for name, dtype in NUMBERS.items()},
        "FP16": np.array([0.5, -2], np.float16),
        "BF16": np.array([0.5, -2], ml_dtypes.bfloat16),
        "BYTES": np.array([b"one", b"\xff\0"], object),
    }
    with region(client, 1024) as (name, handle):
        for datatype, array in arrays.items():
            packed = serialize_byte_tensor(array) if datatype == "BYTES" else array
            shm.set_shared_memory_region(handle, [packed])
            size = len(packed.item()) if datatype == "BYTES" else packed.nbytes
            given = client.module.InferInput("INPUT0", list(array.shape), datatype)
            given.set_shared_memory(name, size)
            asked = client.output("OUTPUT0")
            asked.set_shared_memory(name, size, 512)
            client.ask(f"identity_{datatype.lower()}", given, outputs=[asked])
            dtype = np.object_ if datatype == "BYTES" else array.dtype
            got = shm.get_contents_as_numpy(handle, dtype, list(array.shape), 512)
            assert got.tolist() == array.tolist(), datatype


@check("system shared memory: bounds")
def shared_memory_bounds(client: Client) -> None:
    with region(client, 64) as (name, _):
        given = client.module.InferInput("INPUT0", [1, 16], "INT32")
        given.set_shared_memory(name, 64, 32)
        with refused(name):
            client.ask("simple", given, addends(client)[1])
        asked = client.output("OUTPUT0")
        asked.set_shared_memory(name, 32)
        with refused("shared memory size specified with the request for output"):
            client.ask("simple", *addends(client), outputs=[asked])
    with refused(name):
        client.ask("simple", given, addends(client)[1])


@check("CUDA shared memory: refused without a GPU")
def cuda_shared_memory(client: Client) -> None:
    assert _regions(client, "cuda") == set()
    with refused():
        client.register_cuda_shared_memory("gpu", b"A" * 64, 0, 64)
    client.unregister_cuda_shared_memory()


@check("system shared memory: unregister all")
def unregister_all(client: Client) -> None:
    with region(client, 64):
        client.unregister_system_shared_memory()
        assert _regions(client) == set()


# --- last: it leaves servers with strict readiness not ready


@check("load: an unknown model is refused")
def load_unknown(client: Client) -> None:
    with refused("nothing_like_it"):
        client.load_model("nothing_like_it")
