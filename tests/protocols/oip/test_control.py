"""Configuration, statistics and control: requests as clients send them, answers as Triton prints them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from tritonclient.grpc import model_config_pb2, service_pb2

from interlingua.protocols.oip import DIALECT
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest, HttpReply, HttpRequest, parts_of
from interlingua.schemas import (
    Duration,
    ErrorCode,
    IndexQuery,
    InferenceError,
    ModelControl,
    ModelRef,
    ModelState,
    ModelStatus,
    Operation,
    RequestStatistics,
    SharedMemoryRegion,
    VersionStatistics,
    VersionStatus,
)
from interlingua.schemas.status import ExecutionStatistics
from tests.protocols.oip import grpc_exchange, http_exchange
from tests.protocols.oip.http_exchange import post

HANDLE = base64.b64encode(bytes(64)).decode()
CONFIG = model_config_pb2.ModelConfig(
    name="m", input=[{"name": "x", "data_type": "TYPE_INT64", "dims": [-1, 2**40]}]
)
SIZE_1 = RequestStatistics(
    success=Duration(2, 100),
    failed=Duration(1, 5),
    queue=Duration(2, 10),
    compute_input=Duration(2, 20),
    compute_infer=Duration(2, 30),
    compute_output=Duration(2, 40),
)
SIZE_8 = RequestStatistics(success=Duration(1, 7), compute_infer=Duration(1, 6))
FAILED_ONLY = RequestStatistics(failed=Duration(3, 9))
RUNS = {
    8: ExecutionStatistics(compute_infer=Duration(1, 6)),
    1: ExecutionStatistics(Duration(2, 20), Duration(2, 30), Duration(2, 40)),
}
COUNTED = VersionStatistics(10, 3, 1795223542167, {8: SIZE_8, 1: SIZE_1, 4: FAILED_ONLY}, RUNS)
STATUS = ModelStatus(
    "m",
    versions=(
        VersionStatus("1", ModelState.READY, statistics=COUNTED),
        VersionStatus("3", ModelState.UNAVAILABLE, "it \ud800 broke"),
    ),
)
REGION = SharedMemoryRegion("r", "/k", 8, 2**40)
TRACES = {"trace_level": ("TIMESTAMPS", "TENSORS"), "trace_rate": ("1000",), "trace_file": ("",)}
LOG = {"log_file": "", "log_info": True, "log_verbose_level": 2}


def over_http(method: str, path: str, document: Any = None) -> tuple[Operation, str, str, Any]:
    """What a request is opened as: operation, model, version, argument."""
    body = b"" if document is None else json.dumps(document).encode()
    opened = http_exchange.opened(HttpRequest(method, path, body=body))
    return opened.action.operation, opened.model, opened.version, opened.argument


def over_grpc(rpc: str, **fields: Any) -> tuple[Operation, str, str, Any]:
    message = getattr(service_pb2, f"{rpc}Request")(**fields)
    opened = grpc_exchange.opened(rpc, message.SerializeToString())
    return opened.action.operation, opened.model, opened.version, opened.argument


def told_http(method: str, path: str, result: Any) -> Any:
    """The answer with ``result``: its JSON, None for an empty body."""
    opened = http_exchange.opened(HttpRequest(method, path))
    answer = opened.action.encode(opened, result)
    assert answer is not None
    assert answer.status == 200
    body = b"".join(parts_of(answer))
    return json.loads(body) if body else None


def told_grpc(rpc: str, result: Any, **fields: Any) -> Any:
    message = getattr(service_pb2, f"{rpc}Request")(**fields)
    opened = grpc_exchange.opened(rpc, message.SerializeToString())
    answer = opened.action.encode(opened, result)
    assert answer is not None
    return getattr(service_pb2, f"{rpc}Response").FromString(bytes(answer.message))


PLAIN = ModelControl()
HTTP_REQUESTS = [
    ("GET", "/v2/models/m/config", None, (Operation.MODEL_CONFIG, "m", "", None)),
    ("GET", "/v2/models/a%20b/versions/03/config", None, (Operation.MODEL_CONFIG, "a b", "3", None)),
    ("GET", "/v2/models/m/stats", None, (Operation.STATISTICS, "m", "", None)),
    ("GET", "/v2/models/m/versions/1/stats", None, (Operation.STATISTICS, "m", "1", None)),
    ("GET", "/v2/models/stats", None, (Operation.STATISTICS, "", "", None)),
    ("POST", "/v2/repository/index", None, (Operation.REPOSITORY_INDEX, "", "", IndexQuery())),
    (
        "POST",
        "/v2/repository/a%2Fb/index",
        {"ready": True},
        (Operation.REPOSITORY_INDEX, "", "", IndexQuery("a/b", True)),
    ),
    ("POST", "/v2/repository/models/m/load", None, (Operation.MODEL_LOAD, "m", "", PLAIN)),
    ("POST", "/v2/repository/models/m/load", {}, (Operation.MODEL_LOAD, "m", "", PLAIN)),
    ("POST", "/v2/repository/r/models/m/load", {}, (Operation.MODEL_LOAD, "m", "", ModelControl("r"))),
    (
        "POST",
        "/v2/repository/models/m/load",
        {"parameters": {"config": '{"name": "m"}', "file:1/a": "YQ=="}},
        (Operation.MODEL_LOAD, "m", "", ModelControl("", b"\x0a\x01m", {"1/a": b"a"})),
    ),
    (
        "POST",
        "/v2/repository/models/m/unload",
        {"parameters": {"unload_dependents": True}},
        (Operation.MODEL_UNLOAD, "m", "", ModelControl(dependents=True)),
    ),
    (
        "POST",
        "/v2/systemsharedmemory/region/r/register",
        {"key": "/k", "offset": 8, "byte_size": 2**40},
        (Operation.SHARED_MEMORY_REGISTER, "", "", REGION),
    ),
    (
        "POST",
        "/v2/systemsharedmemory/region/a%20b/unregister",
        None,
        (Operation.SHARED_MEMORY_UNREGISTER, "", "", "a b"),
    ),
    ("POST", "/v2/systemsharedmemory/unregister", None, (Operation.SHARED_MEMORY_UNREGISTER, "", "", None)),
    ("GET", "/v2/systemsharedmemory/status", None, (Operation.SHARED_MEMORY_STATUS, "", "", None)),
    ("GET", "/v2/systemsharedmemory/region/r/status", None, (Operation.SHARED_MEMORY_STATUS, "", "", "r")),
    (
        "POST",
        "/v2/cudasharedmemory/region/r/register",
        {"raw_handle": {"b64": HANDLE}, "device_id": 0, "byte_size": 4},
        (Operation.CUDA_SHARED_MEMORY_REGISTER, "", "", "r"),
    ),
    (
        "POST",
        "/v2/cudasharedmemory/unregister",
        None,
        (Operation.CUDA_SHARED_MEMORY_UNREGISTER, "", "", None),
    ),
    ("GET", "/v2/cudasharedmemory/region/r/status", None, (Operation.CUDA_SHARED_MEMORY_STATUS, "", "", "r")),
    ("GET", "/v2/trace/setting", None, (Operation.TRACE_SETTINGS, "", "", {})),
    (
        "POST",
        "/v2/models/m/trace/setting",
        {"trace_rate": "5", "trace_level": ["TENSORS"], "trace_count": None},
        (
            Operation.TRACE_SETTINGS,
            "m",
            "",
            {"trace_rate": ("5",), "trace_level": ("TENSORS",), "trace_count": ()},
        ),
    ),
    ("GET", "/v2/logging", None, (Operation.LOG_SETTINGS, "", "", {})),
    ("POST", "/v2/logging", LOG, (Operation.LOG_SETTINGS, "", "", LOG)),
]


@pytest.mark.parametrize(("method", "path", "document", "opened"), HTTP_REQUESTS)
def test_requests_over_http(method: str, path: str, document: Any, opened: tuple[Any, ...]) -> None:
    assert over_http(method, path, document) == opened


@pytest.mark.parametrize(
    ("rpc", "fields", "opened"),
    [
        ("ModelConfig", {"name": "m", "version": "1"}, (Operation.MODEL_CONFIG, "m", "1", None)),
        ("ModelStatistics", {"name": "m"}, (Operation.STATISTICS, "m", "", None)),
        ("ModelStatistics", {}, (Operation.STATISTICS, "", "", None)),
        (
            "RepositoryIndex",
            {"repository_name": "r", "ready": True},
            (Operation.REPOSITORY_INDEX, "", "", IndexQuery("r", True)),
        ),
        (
            "RepositoryModelLoad",
            {
                "repository_name": "r",
                "model_name": "m",
                "parameters": {
                    "config": {"string_param": '{"name": "m"}'},
                    "file:1/a": {"bytes_param": b"a"},
                },
            },
            (Operation.MODEL_LOAD, "m", "", ModelControl("r", b"\x0a\x01m", {"1/a": b"a"})),
        ),
        # as KServe's clients write it
        ("RepositoryModelLoad", {"repository_name": "m"}, (Operation.MODEL_LOAD, "m", "", PLAIN)),
        ("RepositoryModelUnload", {"repository_name": "m"}, (Operation.MODEL_UNLOAD, "m", "", PLAIN)),
        (
            "RepositoryModelUnload",
            {"model_name": "m", "parameters": {"unload_dependents": {"bool_param": True}}},
            (Operation.MODEL_UNLOAD, "m", "", ModelControl(dependents=True)),
        ),
        (
            "SystemSharedMemoryRegister",
            {"name": "r", "key": "/k", "offset": 8, "byte_size": 2**40},
            (Operation.SHARED_MEMORY_REGISTER, "", "", REGION),
        ),
        ("SystemSharedMemoryUnregister", {}, (Operation.SHARED_MEMORY_UNREGISTER, "", "", None)),
        ("SystemSharedMemoryStatus", {"name": "r"}, (Operation.SHARED_MEMORY_STATUS, "", "", "r")),
        (
            "CudaSharedMemoryRegister",
            {"name": "r", "raw_handle": bytes(64), "byte_size": 4},
            (Operation.CUDA_SHARED_MEMORY_REGISTER, "", "", "r"),
        ),
        ("CudaSharedMemoryUnregister", {"name": "r"}, (Operation.CUDA_SHARED_MEMORY_UNREGISTER, "", "", "r")),
        ("CudaSharedMemoryStatus", {}, (Operation.CUDA_SHARED_MEMORY_STATUS, "", "", None)),
        (
            "TraceSetting",
            {"model_name": "m", "settings": {"trace_rate": {"value": ["5"]}, "trace_count": {}}},
            (Operation.TRACE_SETTINGS, "m", "", {"trace_rate": ("5",), "trace_count": ()}),
        ),
        (
            "LogSettings",
            {
                "settings": {
                    "log_file": {"string_param": ""},
                    "log_info": {"bool_param": True},
                    "log_verbose_level": {"uint32_param": 2},
                }
            },
            (Operation.LOG_SETTINGS, "", "", LOG),
        ),
    ],
)
def test_requests_over_grpc(rpc: str, fields: dict[str, Any], opened: tuple[Any, ...]) -> None:
    assert over_grpc(rpc, **fields) == opened


# --- answers


def durations(**parts: tuple[int, int]) -> dict[str, dict[str, int]]:
    return {name: {"count": count, "ns": ns} for name, (count, ns) in parts.items()}


STATISTICS = {
    "model_stats": [
        {
            "name": "m",
            "version": "1",
            "last_inference": 1795223542167,
            "inference_count": 10,
            "execution_count": 3,
            "inference_stats": durations(
                success=(3, 107),
                fail=(4, 14),
                queue=(2, 10),
                compute_input=(2, 20),
                compute_infer=(3, 36),
                compute_output=(2, 40),
                cache_hit=(0, 0),
                cache_miss=(0, 0),
            ),
            "response_stats": {},
            "batch_stats": [
                {
                    "batch_size": 1,
                    **durations(compute_input=(2, 20), compute_infer=(2, 30), compute_output=(2, 40)),
                },
                {
                    "batch_size": 8,
                    **durations(compute_input=(0, 0), compute_infer=(1, 6), compute_output=(0, 0)),
                },
            ],
            "memory_usage": [],
        },
    ]
}
READY_ALONE = (ModelStatus("m", versions=STATUS.versions[:1]),)


def test_statistics() -> None:
    assert told_http("GET", "/v2/models/m/stats", READY_ALONE) == STATISTICS
    (told,) = told_grpc("ModelStatistics", READY_ALONE).model_stats
    assert (told.name, told.version, told.last_inference) == ("m", "1", 1795223542167)
    assert (told.inference_stats.success.count, told.inference_stats.fail.ns) == (3, 14)
    assert told.inference_stats.HasField("cache_hit")
    assert [batch.batch_size for batch in told.batch_stats] == [1, 8]


def test_index() -> None:
    models = (STATUS, ModelStatus("never"))
    assert told_http("POST", "/v2/repository/index", models) == [
        {"name": "m", "version": "1", "state": "READY"},
        {"name": "m", "version": "3", "state": "UNAVAILABLE", "reason": "it \\ud800 broke"},
        {"name": "never"},
    ]
    told = told_grpc("RepositoryIndex", models).models
    assert [(each.name, each.version, each.state) for each in told] == [
        ("m", "1", "READY"),
        ("m", "3", "UNAVAILABLE"),
        ("never", "", ""),
    ]


def test_configuration() -> None:
    serialized = CONFIG.SerializeToString()
    completed = model_config_pb2.ModelConfig.FromString(serialized)
    completed.optimization.input_pinned_memory.enable = True
    completed.optimization.output_pinned_memory.enable = True
    assert told_grpc("ModelConfig", serialized, name="m").config == completed
    told = told_http("GET", "/v2/models/m/config", serialized)
    assert told["input"] == [
        {
            "name": "x",
            "data_type": "TYPE_INT64",
            "format": "FORMAT_NONE",
            "dims": [-1, 2**40],
            "is_shape_tensor": False,
            "allow_ragged_batch": False,
            "optional": False,
            "is_non_linear_format_io": False,
        }
    ]
    assert (told["name"], told["max_batch_size"], told["metric_tags"], told["output"]) == ("m", 0, {}, [])
    # what is not set has no place
    assert not {"version_policy", "dynamic_batching"} & told.keys()
    # what Triton has on where nothing is stated
    assert told["optimization"]["input_pinned_memory"] == {"enable": True}


def test_a_configuration_with_everything_in_it() -> None:
    config = model_config_pb2.ModelConfig(
        optimization={"eager_batching": True, "input_pinned_memory": {"enable": False}},
        dynamic_batching={
            "preferred_batch_size": [4],
            "priority_queue_policy": {3: {"timeout_action": "DELAY", "max_queue_size": 7}},
        },
        parameters={"k": {"string_value": "v"}},
        instance_group=[{"kind": 9}],
    )
    told = told_http("GET", "/v2/models/m/config", config.SerializeToString())
    assert told["parameters"] == {"k": {"string_value": "v"}}
    assert told["dynamic_batching"]["priority_queue_policy"] == {
        "3": {
            "timeout_action": "DELAY",
            "default_timeout_microseconds": 0,
            "allow_timeout_override": False,
            "max_queue_size": 7,
        }
    }
    assert told["optimization"]["eager_batching"] is True
    assert told["optimization"]["input_pinned_memory"] == {"enable": False}
    # a number that the enumeration has no name for
    assert told["instance_group"][0]["kind"] == 9


def test_regions() -> None:
    second = SharedMemoryRegion("a", "/k", 0, 1)
    assert told_http("GET", "/v2/systemsharedmemory/status", (REGION, second)) == [
        {"name": "a", "key": "/k", "offset": 0, "byte_size": 1},
        {"name": "r", "key": "/k", "offset": 8, "byte_size": 2**40},
    ]
    told = told_grpc("SystemSharedMemoryStatus", (REGION,)).regions
    assert {name: (each.name, each.key, each.offset, each.byte_size) for name, each in told.items()} == {
        "r": ("r", "/k", 8, 2**40)
    }
    assert told_http("GET", "/v2/cudasharedmemory/status", ()) == []
    assert not told_grpc("CudaSharedMemoryStatus", ()).regions


def test_settings() -> None:
    assert told_http("GET", "/v2/trace/setting", TRACES) == {
        "trace_level": ["TIMESTAMPS", "TENSORS"],
        "trace_rate": "1000",
        "trace_file": "",
    }
    told = told_grpc("TraceSetting", TRACES).settings
    assert {name: tuple(each.value) for name, each in told.items()} == TRACES
    assert told_http("POST", "/v2/logging", LOG) == LOG
    log = told_grpc("LogSettings", LOG).settings
    assert log["log_info"].bool_param is True
    assert (log["log_verbose_level"].uint32_param, log["log_file"].WhichOneof("parameter_choice")) == (
        2,
        "string_param",
    )


@pytest.mark.parametrize(
    ("path", "rpc"),
    [
        ("/v2/repository/models/m/load", "RepositoryModelLoad"),
        ("/v2/repository/models/m/unload", "RepositoryModelUnload"),
        ("/v2/systemsharedmemory/unregister", "SystemSharedMemoryUnregister"),
        ("/v2/cudasharedmemory/unregister", "CudaSharedMemoryUnregister"),
    ],
)
def test_what_was_done_is_not_described(path: str, rpc: str) -> None:
    assert told_http("POST", path, None) is None
    assert not told_grpc(rpc, None).ListFields()


@pytest.mark.parametrize("rpc", ["RepositoryModelLoad", "RepositoryModelUnload"])
def test_kserves_clients_see_that_it_was_done(rpc: str) -> None:
    """To them an empty answer says that the model is not loaded, or not unloaded."""
    message = getattr(service_pb2, f"{rpc}Request")(repository_name="m").SerializeToString()
    opened = grpc_exchange.opened(rpc, message)
    answer = opened.action.encode(opened, None)
    assert answer is not None
    assert bytes(answer.message) == b"\x0a\x01m\x10\x01"


# --- what is refused


@pytest.mark.parametrize(
    ("path", "document", "code", "said"),
    [
        ("repository/index", {"ready": "yes"}, ErrorCode.MALFORMED, "'ready' must be a boolean"),
        ("repository/index", [], ErrorCode.MALFORMED, "the JSON body is not an object"),
        ("repository/%ff/index", {}, ErrorCode.MALFORMED, "the repository '%ff' in the path is not UTF-8"),
        (
            "repository/models/m/load",
            {"parameters": {"foo": "x"}},
            ErrorCode.INVALID_TENSOR,
            "failed to load 'm', a load has no parameter 'foo'",
        ),
        (
            "repository/models/m/load",
            {"parameters": 1},
            ErrorCode.MALFORMED,
            "failed to load 'm', 'parameters' must be an object",
        ),
        (
            "repository/models/m/load",
            {"parameters": {"config": {}}},
            ErrorCode.INVALID_TENSOR,
            "failed to load 'm', parameter 'config' must be a string",
        ),
        (
            "repository/models/m/load",
            {"parameters": {"config": "{"}},
            ErrorCode.MALFORMED,
            "failed to load 'm', parameter 'config' is not JSON: unexpected end of data",
        ),
        (
            "repository/models/m/load",
            {"parameters": {"config": "[1]"}},
            ErrorCode.MALFORMED,
            "failed to load 'm', parameter 'config' is not a JSON object",
        ),
        (
            "repository/models/m/load",
            {"parameters": {"config": '{"max_batchsize": 1}'}},
            ErrorCode.MALFORMED,
            "failed to load 'm', parameter 'config': this is no ModelConfig: Message type "
            '"inference.ModelConfig" has no field named "max_batchsize" at "ModelConfig".',
        ),
        (
            "repository/models/m/load",
            {"parameters": {"config": '{"max_batch_size": "many"}'}},
            ErrorCode.MALFORMED,
            "failed to load 'm', parameter 'config': this is no ModelConfig: Failed to parse max_batch_size",
        ),
        (
            "repository/models/m/load",
            {"parameters": {"file:1/x": "?"}},
            ErrorCode.MALFORMED,
            "failed to load 'm', parameter 'file:1/x' is no base64",
        ),
        (
            "repository/models/m/load",
            {"parameters": {"file:1/x": 1}},
            ErrorCode.INVALID_TENSOR,
            "failed to load 'm', parameter 'file:1/x' must be the content of a file",
        ),
        (
            "repository/models/m/unload",
            {"parameters": {"unload_dependents": 1}},
            ErrorCode.INVALID_TENSOR,
            "failed to unload 'm', parameter 'unload_dependents' must be a boolean",
        ),
        (
            "repository/models/m/unload",
            {"parameters": {"config": ""}},
            ErrorCode.INVALID_TENSOR,
            "an unload has no parameter 'config'",
        ),
        (
            "systemsharedmemory/region/r/register",
            {"key": "/k"},
            ErrorCode.INVALID_TENSOR,
            "Shared memory register request has no 'byte_size' field",
        ),
        (
            "systemsharedmemory/region/r/register",
            None,
            ErrorCode.INVALID_TENSOR,
            "Shared memory register request has no 'key' field",
        ),
        (
            "systemsharedmemory/region/r/register",
            {"key": "/k", "byte_size": 2**64},
            ErrorCode.MALFORMED,
            "'byte_size' must be an unsigned integer",
        ),
        (
            "systemsharedmemory/region/r/register",
            {"key": "/k", "offset": -1, "byte_size": 1},
            ErrorCode.MALFORMED,
            "'offset' must be an unsigned integer",
        ),
        (
            "cudasharedmemory/region/r/register",
            {"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 64},
            ErrorCode.INVALID_TENSOR,
            "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t",
        ),
        ("trace/setting", {"trace_rate": 10}, ErrorCode.MALFORMED, "setting 'trace_rate' must be a string"),
        (
            "trace/setting",
            {"trace_level": [1]},
            ErrorCode.MALFORMED,
            "'trace_level' must be a string or an array",
        ),
        (
            "logging",
            {"log_info": None},
            ErrorCode.MALFORMED,
            "setting 'log_info' must be a boolean, an unsigned",
        ),
    ],
)
def test_refused_over_http(path: str, document: Any, code: ErrorCode, said: str) -> None:
    body = b"" if document is None else json.dumps(document).encode()
    with pytest.raises(InferenceError) as caught:
        http_exchange.opened(post(body, path=f"/v2/{path}"))
    assert caught.value.code is code
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("rpc", "fields", "said"),
    [
        (
            "RepositoryModelLoad",
            {"model_name": "m", "parameters": {"config": {}}},
            "failed to load 'm', parameter 'config' must be a string",
        ),
        (
            "RepositoryModelLoad",
            {"model_name": "m", "parameters": {"config": {"string_param": "{"}}},
            "failed to load 'm', parameter 'config' is not JSON",
        ),
        (
            "RepositoryModelLoad",
            {"parameters": {"file:x": {"string_param": ""}}},
            "must be the content of a file",
        ),
        ("RepositoryModelUnload", {"parameters": {"what": {"bool_param": True}}}, "has no parameter 'what'"),
        ("LogSettings", {"settings": {"log_info": {}}}, "setting 'log_info' has no value"),
    ],
)
def test_refused_over_grpc(rpc: str, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InferenceError, match=said):
        over_grpc(rpc, **fields)


@pytest.mark.parametrize(
    ("code", "status", "number"),
    [(ErrorCode.MODEL_FAILED, 400, 3), (ErrorCode.INTERNAL, 500, 13), (ErrorCode.FORBIDDEN, 403, 7)],
)
def test_a_load_that_failed(code: ErrorCode, status: int, number: int) -> None:
    error = InferenceError(code, "failed to load 'm'")
    request = HttpRequest("POST", "/v2/repository/models/m/load")
    opened = http_exchange.opened(request)
    endpoint = http_exchange.PATHS.find(request.path)[0]["POST"]
    assert endpoint.fail(request, opened, error).status == status
    message = service_pb2.RepositoryModelLoadRequest(model_name="m").SerializeToString()
    loading = grpc_exchange.opened("RepositoryModelLoad", message)
    method = grpc_exchange.ENDPOINTS[grpc_exchange.SERVICE + "RepositoryModelLoad"]
    answer = method.fail(GrpcRequest(method.method, message), loading, error)
    assert (answer.code, answer.details) == (number, "failed to load 'm'")


# --- as a client


@pytest.mark.parametrize(
    ("operation", "verb"), [(Operation.MODEL_LOAD, "load"), (Operation.MODEL_UNLOAD, "unload")]
)
def test_calls_over_http(operation: Operation, verb: str) -> None:
    for calls in (DIALECT.bindings["http"].calls, DIALECT.bindings["http"].flavors["mlserver"].calls):
        request, form = calls[operation].encode(ModelRef("a/b"), None)
        assert (request.method, request.path) == ("POST", f"/v2/repository/models/a%2Fb/{verb}")
        opened = http_exchange.opened(http_exchange.arriving(request))
        assert (opened.action.operation, opened.model, opened.argument) == (operation, "a/b", PLAIN)
        # KServe's answer has a body
        for body in (b"", b'{"name":"a/b","load":true}'):
            assert calls[operation].decode(form, HttpReply(200, {}, body)) is None
        with pytest.raises(InferenceError, match="gone") as caught:
            calls[operation].decode(form, HttpReply(404, {}, b'{"error":"gone"}'))
        assert caught.value.code is ErrorCode.NOT_FOUND


@pytest.mark.parametrize("flavor", ["", "kserve"])
@pytest.mark.parametrize(
    ("operation", "rpc"),
    [(Operation.MODEL_LOAD, "RepositoryModelLoad"), (Operation.MODEL_UNLOAD, "RepositoryModelUnload")],
)
def test_calls_over_grpc(flavor: str, operation: Operation, rpc: str) -> None:
    calls = DIALECT.bindings["grpc"].flavored(flavor).calls
    request, form = calls[operation].encode(ModelRef("m"), None)
    sent = getattr(service_pb2, f"{rpc}Request").FromString(bytes(request.message))
    assert (sent.repository_name, sent.model_name) == (("m", "") if flavor else ("", "m"))
    opened = grpc_exchange.arriving(request)
    assert (opened.action.operation, opened.model, opened.argument) == (operation, "m", PLAIN)
    # KServe's answer has the name and a flag
    for message in (b"", b"\x0a\x01m\x10\x01"):
        assert calls[operation].decode(form, GrpcAnswer(message)) is None
    with pytest.raises(InferenceError, match="gone"):
        calls[operation].decode(form, GrpcAnswer(code=5, details="gone"))
    with pytest.raises(InferenceError) as caught:
        calls[operation].encode(ModelRef("\ud800"), None)
    assert caught.value.code is ErrorCode.UNREPRESENTABLE
