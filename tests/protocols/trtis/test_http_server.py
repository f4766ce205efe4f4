"""What is offered over HTTP beside inference: paths, methods, formats, statuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import text_format

from interlingua.protocols.trtis import DIALECT
from interlingua.protocols.trtis.status import (
    REPOSITORY_INDEX,
    SERVER_STATUS,
    SHARED_MEMORY_STATUS,
    STATUS_CODES,
    status_code,
)
from interlingua.protocols.wire import HttpAnswer
from interlingua.schemas import (
    Duration,
    ErrorCode,
    InferenceError,
    ModelState,
    ModelStatus,
    Operation,
    Readiness,
    RequestStatistics,
    ServerState,
    ServerStatus,
    SharedMemoryRegion,
    VersionStatistics,
    VersionStatus,
)
from interlingua.schemas.oip import MESSAGES as OIP_MESSAGES
from tests.protocols.trtis.http_exchange import PATHS, asking, body, infer, opened, refused, status

SHM = "/api/sharedmemorycontrol"
SUCCESS = ("NV-Status", 'code: SUCCESS server_id: "inference:0" request_id: 7')
REGION = SharedMemoryRegion("r", "/k", 8, 64)

CONFIG = OIP_MESSAGES["inference.ModelConfig"](
    name="m",
    platform="onnxruntime_onnx",
    backend="onnxruntime",  # a field that version 1 does not have
    max_batch_size=8,
    input=[
        {"name": "x", "data_type": "TYPE_FP32", "dims": [16], "optional": True},
        {"name": "n", "data_type": "TYPE_INT32"},
    ],
    output=[{"name": "y", "data_type": "TYPE_STRING", "dims": [-1], "label_filename": "labels.txt"}],
    instance_group=[{"name": "m", "kind": "KIND_CPU", "count": 1}],
).SerializeToString()

STATISTICS = VersionStatistics(
    inference_count=6,
    execution_count=3,
    last_inference_ms=1234,
    by_batch_size={
        2: RequestStatistics(
            Duration(3, 900), Duration(1, 5), Duration(3, 100), Duration(3, 10), Duration(3, 600), Duration(3, 20)
        )
    },
)  # fmt: skip
TOLD = ServerStatus(
    "inference:0",
    ServerState.READY,
    55,
    {
        "m": ModelStatus(
            "m",
            CONFIG,
            (
                VersionStatus("1", ModelState.READY, statistics=STATISTICS),
                VersionStatus("2", ModelState.UNAVAILABLE, "unloaded"),
                VersionStatus("v0.1", ModelState.READY),
            ),
        )
    },
    {
        "status": Duration(2, 30),
        "live": Duration(1, 4),
        "ready": Duration(2, 5),
        "model_unload": Duration(1, 9),
    },
)
EXPECTED = text_format.Parse(
    """
    id: "inference:0" version: "1.15.0" uptime_ns: 55 ready_state: SERVER_READY
    status_stats { success { count: 2 total_time_ns: 30 } }
    health_stats { success { count: 3 total_time_ns: 9 } }
    model_control_stats { success { count: 1 total_time_ns: 9 } }
    repository_stats { success { } }
    model_status { key: "m" value {
      config {
        name: "m" platform: "onnxruntime_onnx" max_batch_size: 8
        input { name: "x" data_type: TYPE_FP32 dims: 16 }
        input { name: "n" data_type: TYPE_INT32 dims: 1 reshape { } }
        output { name: "y" data_type: TYPE_STRING dims: -1 label_filename: "labels.txt" }
        instance_group { name: "m" kind: KIND_CPU count: 1 }
      }
      version_status { key: 1 value {
        ready_state: MODEL_READY model_execution_count: 3 model_inference_count: 6
        last_inference_timestamp_milliseconds: 1234
        infer_stats { key: 2 value {
          success { count: 3 total_time_ns: 900 } failed { count: 1 total_time_ns: 5 }
          compute { count: 3 total_time_ns: 630 } queue { count: 3 total_time_ns: 100 }
        } }
      } }
      version_status { key: 2 value {
        ready_state: MODEL_UNAVAILABLE ready_state_reason { message: "unloaded" }
      } }
    } }
    """,
    SERVER_STATUS(),
)


def result(path: str, value: Any, method: str = "GET", headers: dict[str, str] | None = None) -> HttpAnswer:
    """``value`` as the result of what ``path`` asks."""
    message = opened(asking(method, path, headers))
    return message.action.encode(message, value)


def unmatched(method: str, path: str) -> HttpAnswer:
    request = asking(method, path)
    methods, _ = PATHS.find(request.path)
    assert method not in methods
    assert DIALECT.bindings["http"].unmatched is not None
    return DIALECT.bindings["http"].unmatched(request, tuple(methods))


# --- paths and methods


@pytest.mark.parametrize(
    ("method", "path", "operation", "model", "argument"),
    [
        ("GET", "/api/health/live", Operation.LIVE, "", None),
        ("GET", "/api/health/ready", Operation.READY, "", None),
        ("GET", "/api/status", Operation.STATUS, "", None),
        ("GET", "/api/status/", Operation.STATUS, "", None),
        ("GET", "/api/status/m?format=json", Operation.STATUS, "m", None),
        ("GET", "/api/status/a%20b", Operation.STATUS, "a%20b", None),
        ("POST", "/api/modelcontrol/load/m", Operation.MODEL_LOAD, "m", None),
        ("POST", "/api/modelcontrol/unload/m", Operation.MODEL_UNLOAD, "m", None),
        ("GET", "/api/repository/index", Operation.REPOSITORY_INDEX, "", None),
        ("POST", f"{SHM}/register/r//k/8/64?format=binary", Operation.SHARED_MEMORY_REGISTER, "", REGION),
        ("POST", f"{SHM}/unregister/all", Operation.SHARED_MEMORY_UNREGISTER, "", "all"),
        ("POST", f"{SHM}/unregisterall", Operation.SHARED_MEMORY_UNREGISTER, "", None),
        ("GET", f"{SHM}/status", Operation.SHARED_MEMORY_STATUS, "", None),
        ("POST", f"{SHM}/status", Operation.SHARED_MEMORY_STATUS, "", None),
    ],
)
def test_endpoints(method: str, path: str, operation: Operation, model: str, argument: Any) -> None:
    found = opened(asking(method, path))
    assert (found.action.operation, found.model, found.argument) == (operation, model, argument)


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/", 400),
        ("GET", "/api", 400),
        ("GET", "/api/", 400),
        ("POST", "/api/profile", 400),
        ("GET", "/apis/health/live", 400),
        ("POST", "/v2/health/live", 400),
        ("GET", "/api/health", 400),
        ("GET", "/api/health/foo", 400),
        ("GET", "/api/status/a/b", 400),
        ("POST", "/api/infer/", 400),
        ("POST", "/api/infer/m/1/", 400),
        ("POST", "/api/modelcontrol/reload/m", 400),
        ("GET", "/api/repository", 400),
        ("POST", f"{SHM}/register/r/k/8/64", 400),
        ("POST", f"{SHM}/register/r//k/l/8/64", 400),
        ("POST", "/api/health/live", 405),
        ("POST", "/api/health/foo", 405),
        ("HEAD", "/api/status", 405),
        ("GET", "/api/infer/m", 405),
        ("GET", "/api/infer/m/1/", 405),
        ("GET", "/api/modelcontrol/load/m", 405),
        ("POST", "/api/repository/index", 405),
        ("GET", f"{SHM}/unregisterall", 405),
        ("DELETE", f"{SHM}/nothing", 405),
    ],
)
def test_what_no_endpoint_has_is_answered_without_a_word(method: str, path: str, code: int) -> None:
    assert unmatched(method, path) == HttpAnswer(code)


@pytest.mark.parametrize(
    "path",
    [
        "/api/infer/m/-1",
        "/api/infer/m/x",
        "/api/infer/m/1.0",
        f"/api/infer/m/{2**63}",
        "/api/infer/m/%31",
        f"{SHM}/register/r//k/x/64",
        f"{SHM}/register/r//k/8/-1",
        f"{SHM}/register/r//k/8/{2**64}",
    ],
)
def test_numbers_in_a_path_that_are_none(path: str) -> None:
    request = infer(path)
    with pytest.raises(InferenceError) as caught:
        opened(request)
    answer = refused(request, caught.value, opens=False)
    assert (answer.status, answer.headers, body(answer)) == (400, (), b"")


def test_cuda_regions_are_refused_by_name() -> None:
    request = asking("POST", f"{SHM}/cudaregister/r/64/0", body=bytes(64))
    with pytest.raises(InferenceError) as caught:
        opened(request)
    answer = refused(request, caught.value, opens=False)
    assert answer.status == 400
    assert status(answer).code == 5
    assert status(answer).msg == "failed to register CUDA shared memory region: 'r', GPUs not supported"


# --- answers


@pytest.mark.parametrize(("ready", "code"), [(True, 200), (False, 400)])
@pytest.mark.parametrize("probe", ["live", "ready"])
def test_health(probe: str, ready: bool, code: int) -> None:
    assert result(f"/api/health/{probe}", Readiness(ready, "not yet")) == HttpAnswer(code, (SUCCESS,))


def test_a_server_that_is_leaving_says_so() -> None:
    answer = result("/api/health/ready", Readiness(False, "shutting down", leaving=True))
    assert answer.status == 400
    assert (status(answer).code, status(answer).msg) == (6, "Server exiting")


@pytest.mark.parametrize(
    "path",
    [
        "/api/modelcontrol/load/m",
        "/api/modelcontrol/unload/m",
        f"{SHM}/register/r//k/0/1",
        f"{SHM}/unregisterall",
    ],
)
def test_what_is_done_is_a_status_alone(path: str) -> None:
    assert result(path, None, "POST") == HttpAnswer(200, (SUCCESS,))


def test_status_as_a_message() -> None:
    answer = result("/api/status?format=binary", TOLD)
    assert (answer.status, answer.headers) == (200, (SUCCESS, ("Content-Type", "application/octet-stream")))
    assert SERVER_STATUS.FromString(body(answer)) == EXPECTED


@pytest.mark.parametrize(
    ("path", "accept", "kind"),
    [
        ("/api/status", "*/*", "text/plain"),
        ("/api/status?format=", "application/json", "text/plain"),
        ("/api/status?format=text", "application/json", "text/plain"),
        ("/api/status?other=json", "*/*", "text/plain"),
        ("/api/status", "application/json", "application/json"),
        ("/api/status", "application/json, */*", "text/plain"),
        ("/api/status/m?format=json", "*/*", "application/json"),
        ("/api/status?a=b&format=binary", "application/json", "application/octet-stream"),
    ],
)
def test_the_format_of_a_status(path: str, accept: str, kind: str) -> None:
    answer = result(path, TOLD, headers={"accept": accept})
    assert dict(answer.headers)["Content-Type"] == kind
    if kind == "text/plain":
        assert text_format.Parse(body(answer), SERVER_STATUS()) == EXPECTED


def test_status_as_json_has_the_names_of_the_contract() -> None:
    told = json.loads(body(result("/api/status?format=json", TOLD)))
    assert told["uptime_ns"] == "55"
    assert told["ready_state"] == "SERVER_READY"
    version = told["model_status"]["m"]["version_status"]["1"]
    assert version["infer_stats"]["2"]["success"] == {"count": "3", "total_time_ns": "900"}
    assert told["model_status"]["m"]["config"]["input"][0]["data_type"] == "TYPE_FP32"


def test_a_status_that_is_exiting() -> None:
    leaving = ServerStatus("", ServerState.EXITING, 0, {})
    assert SERVER_STATUS.FromString(body(result("/api/status?format=binary", leaving))).ready_state == 3


@pytest.mark.parametrize("state", list(ModelState))
def test_states_of_a_version(state: ModelState) -> None:
    told = ServerStatus("", ServerState.READY, 0, {"m": ModelStatus("m", b"", (VersionStatus("7", state),))})
    message = SERVER_STATUS.FromString(body(result("/api/status?format=binary", told)))
    assert message.model_status["m"].config.name == "m"
    version = message.model_status["m"].version_status[7]
    names = type(version).DESCRIPTOR.fields_by_name["ready_state"].enum_type.values_by_number
    assert names[version.ready_state].name == f"MODEL_{state.value}"


def test_a_configuration_that_is_no_message_is_our_fault() -> None:
    told = ServerStatus("", ServerState.READY, 0, {"m": ModelStatus("m", b"\xff")})
    with pytest.raises(InferenceError, match="'m'") as caught:
        result("/api/status", told)
    assert caught.value.code is ErrorCode.INTERNAL


def test_the_repository_has_names_alone() -> None:
    models = (ModelStatus("b", CONFIG), ModelStatus("a"))
    answer = result("/api/repository/index?format=binary", models)
    expected = REPOSITORY_INDEX(models=[{"name": "b"}, {"name": "a"}])
    assert REPOSITORY_INDEX.FromString(body(answer)) == expected
    answer = result("/api/repository/index", models)
    assert body(answer) == b'models {\n  name: "b"\n}\nmodels {\n  name: "a"\n}\n'


def test_regions_of_shared_memory() -> None:
    answer = result(f"{SHM}/status?format=binary", (REGION,))
    place = {"shared_memory_key": "/k", "offset": 8}
    expected = SHARED_MEMORY_STATUS(
        shared_memory_region=[{"name": "r", "system_shared_memory": place, "byte_size": 64}]
    )
    assert SHARED_MEMORY_STATUS.FromString(body(answer)) == expected
    assert text_format.Parse(body(result(f"{SHM}/status", (REGION,))), SHARED_MEMORY_STATUS()) == expected


# --- errors


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_error_is_a_400_with_its_code(code: ErrorCode) -> None:
    answer = refused(asking("POST", "/api/modelcontrol/load/m"), InferenceError(code, "why"))
    told = status(answer)
    assert answer.status == 400
    assert [name for name, _ in answer.headers] == ["NV-Status"]
    assert (told.code, told.msg, told.server_id, told.request_id) == (
        STATUS_CODES[code],
        "why",
        "inference:0",
        7,
    )
    assert body(answer) == b""


UNKNOWN = InferenceError(ErrorCode.NOT_FOUND, "unknown")
NO_REGION = InferenceError(ErrorCode.NOT_FOUND, "no region", details={"shared_memory_region": "r"})


@pytest.mark.parametrize(
    ("request_", "error", "code"),
    [
        (infer(), UNKNOWN, "UNAVAILABLE"),
        (infer(), NO_REGION, "NOT_FOUND"),
        (infer(), InferenceError(ErrorCode.UNAVAILABLE, "not ready"), "UNAVAILABLE"),
        (asking("GET", "/api/status/m"), UNKNOWN, "INVALID_ARG"),
        (asking("POST", "/api/modelcontrol/load/m"), UNKNOWN, "NOT_FOUND"),
    ],
)
def test_what_is_not_found(request_: Any, error: InferenceError, code: str) -> None:
    assert f"code: {code} " in dict(refused(request_, error).headers)["NV-Status"]


def test_not_found_before_the_operation_is_known() -> None:
    assert status_code(UNKNOWN, None) == 4


def test_a_message_that_is_no_unicode() -> None:
    answer = refused(asking("GET", "/api/status/m"), InferenceError(ErrorCode.NOT_FOUND, "é \udc80 \n"))
    assert r'msg: "\303\251 \\udc80 \n"' in dict(answer.headers)["NV-Status"]


def test_a_message_that_no_client_could_take_is_cut() -> None:
    error = InferenceError(ErrorCode.NOT_FOUND, "é" * 100_000 + "end")
    answer = refused(asking("GET", "/api/status/m"), error)
    text = dict(answer.headers)["NV-Status"]
    assert len(text) < 2**16 and status(answer).msg == "é" * 4096
