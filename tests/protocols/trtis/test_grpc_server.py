"""The gRPC methods as a server: every answer under the status OK, whatever became of the request."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferResponse,
    ModelState,
    ModelStatus,
    Operation,
    Readiness,
    RequestedOutput,
    Sequence,
    ServerState,
    ServerStatus,
    SharedMemoryRef,
    SharedMemoryRegion,
    Signature,
    Tensor,
    TensorSpec,
    VersionStatus,
)
from tests.protocols.trtis.grpc_exchange import (
    ENDPOINTS,
    answered,
    asking,
    decoded,
    failed,
    header,
    infer,
    opened,
    reported,
)
from tests.standins.trtis_contract import SERVICE, message, parse

NUMBERS = np.arange(4, dtype=np.int32).tobytes()
STRINGS = b"\x01\0\0\0a\0\0\0\0"
A = {"name": "a", "dims": [2]}
S = {"name": "s", "dims": [1], "batch_byte_size": len(STRINGS)}
PLACE = {"name": "region", "offset": 4, "byte_size": 16}
WHOLE = infer(header(input=[A, S], output=[{"name": "x"}], id=9), NUMBERS, STRINGS)

X = Tensor.checked("x", Datatype.INT32, (2, 2), NUMBERS)
T = Tensor.checked("t", Datatype.BYTES, (2, 1), STRINGS)
P = Tensor.from_numpy("p", np.array([[0.5, 2, 1], [3, 3, -1]], np.float32))


# --- inference


def test_a_request() -> None:
    asked = infer(
        header(
            input=[S, A],
            output=[{"name": "p", "cls": {"count": 2}}, {"name": "x", "shared_memory": PLACE}, {"name": "t"}],
            correlation_id=2**64 - 1,
            flags=3,
            id=2**63,
            priority=4,
            timeout_microseconds=5,
        ),
        STRINGS,
        NUMBERS,
        version=3,
    )
    found = opened("Infer", asked)
    assert (found.action.operation, found.model, found.version) == (Operation.INFER, "m", "3")
    request, _ = decoded(asked)
    assert request.inputs == (
        Tensor.checked("s", Datatype.BYTES, (2, 1), STRINGS),
        Tensor.checked("a", Datatype.INT32, (2, 2), NUMBERS),
    )
    assert request.outputs == (
        RequestedOutput("p", 2),
        RequestedOutput("x", placement=SharedMemoryRef("region", 4, 16)),
        RequestedOutput("t"),
    )
    assert request.sequence == Sequence(2**64 - 1, start=True, end=True)
    assert (request.model, request.version, request.id) == ("m", "3", str(2**63))
    assert (request.priority, request.timeout_us) == (4, 5)


def test_contents_are_not_copied() -> None:
    wire = WHOLE.SerializeToString()
    request, _ = decoded(wire)
    assert all(tensor.view.obj is wire for tensor in request.inputs)


@pytest.mark.parametrize(("version", "expected"), [(-1, ""), (0, "0"), (7, "7"), (2**63 - 1, str(2**63 - 1))])
def test_versions(version: int, expected: str) -> None:
    assert opened("Infer", infer(header(), version=version)).version == expected


def test_version_left_unset_is_version_0() -> None:
    assert opened("StreamInfer", message("InferRequest", model_name="m")).version == "0"


def test_no_client_requests_outputs() -> None:
    assert decoded(infer(header(input=[A, S]), NUMBERS, STRINGS))[0].outputs == ()


def test_contents_beyond_the_inputs_are_ignored() -> None:
    assert len(decoded(infer(header(input=[A, S]), NUMBERS, STRINGS, b"more"))[0].inputs) == 2


def test_inputs_in_shared_memory_take_no_contents() -> None:
    asked = infer(header(input=[{**A, "shared_memory": PLACE}, S]), STRINGS)
    request, _ = decoded(asked)
    assert request.inputs[0].data == SharedMemoryRef("region", 4, 16)
    assert request.inputs[1].view == STRINGS


def test_an_answer_has_contents_for_every_output() -> None:
    asked = infer(
        header(
            input=[A, S],
            output=[
                {"name": "p", "cls": {"count": 2}},
                {"name": "t"},
                {"name": "x", "shared_memory": PLACE},
            ],
            id=9,
        ),
        NUMBERS,
        STRINGS,
    )
    placed = Tensor("x", Datatype.INT32, (2, 2), SharedMemoryRef("region", 4, 16))
    answer = answered(asked, InferResponse("m", (placed, T, P), "3"))
    assert list(answer.raw_output) == [b"", STRINGS, b""]
    head = answer.meta_data
    assert (head.model_name, head.model_version, head.batch_size, head.id) == ("m", 3, 2, 9)
    classes, strings, numbers = head.output
    assert [
        [(rank.idx, rank.value, rank.label) for rank in entry.cls] for entry in classes.batch_classes
    ] == [[(1, 2.0, "bee"), (2, 1.0, "")], [(0, 3.0, "ant"), (1, 3.0, "bee")]]
    assert not classes.HasField("raw")
    assert (list(strings.raw.dims), strings.raw.batch_byte_size) == ([1], len(STRINGS))
    assert (list(numbers.raw.dims), numbers.raw.batch_byte_size) == ([2], 16)
    status = answer.request_status
    assert (status.code, status.msg, status.server_id, status.request_id) == (1, "", "inference:0", 7)


def test_an_answer_without_outputs() -> None:
    answer = answered(infer(header(input=[A, S]), NUMBERS, STRINGS), InferResponse("m", (), "1"))
    assert (answer.request_status.code, answer.meta_data.batch_size) == (1, 2)
    assert not answer.raw_output and not answer.meta_data.output


def test_a_model_without_batches() -> None:
    spec = (TensorSpec("a", Datatype.INT32, (2, 2)),)
    signature = Signature(spec, spec)
    asked = infer(header(1, input=[{"name": "a"}], output=[{"name": "a"}]), NUMBERS)
    assert decoded(asked, signature)[0].inputs[0].shape == (2, 2)
    answer = answered(asked, InferResponse("m", (X.renamed("a"),), "1"), signature)
    assert (answer.meta_data.batch_size, list(answer.meta_data.output[0].raw.dims)) == (1, [2, 2])


FAULTS: dict[str, tuple[Any, str]] = {
    "no contents": (
        infer(header(input=[A, S])),
        "expected tensor data for at least 1 inputs but got only 0 sets of data for model 'm'",
    ),
    "contents for one": (
        infer(header(input=[A, S]), NUMBERS),
        "expected tensor data for at least 2 inputs but got only 1 sets of data for model 'm'",
    ),
    "short contents": (
        infer(header(input=[A, S]), NUMBERS[1:], STRINGS),
        "unexpected size 15 for input 'a', expecting 16 for model 'm'",
    ),
    "long contents": (
        infer(header(input=[A, S]), NUMBERS, STRINGS + b"\0"),
        "unexpected size 10 for input 's', expecting 9 for model 'm'",
    ),
    "wrong shared memory": (
        infer(header(input=[{**A, "shared_memory": {**PLACE, "byte_size": 15}}, S]), STRINGS),
        "unexpected size 15 for input 'a', expecting 16 for model 'm'",
    ),
    "no batch": (infer(header(0)), "inference request batch-size must be >= 1 for 'm'"),
    "large batch": (infer(header(5)), "inference request batch-size must be <= 4 for 'm'"),
    "one input": (infer(header(input=[A]), NUMBERS), "expected 2 inputs but got 1 inputs for model 'm'"),
    "unknown input": (
        infer(header(input=[A, {"name": "z"}]), NUMBERS, STRINGS),
        "unexpected inference input 'z' for model 'm'",
    ),
    "shape": (
        infer(header(input=[{"name": "a", "dims": [3]}, S]), NUMBERS, STRINGS),
        "unexpected shape for input 'a' for model 'm'. Expected [2], got [3]",
    ),
}


@pytest.mark.parametrize("rpc", ["Infer", "StreamInfer"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_reported_in_the_answer(fault: str, rpc: str) -> None:
    asked, expected = FAULTS[fault]
    asked.meta_data.id = 11
    code, text, answer = failed(rpc, asked)
    assert (code, text) == ("INVALID_ARG", expected)
    assert answer.meta_data == message("InferResponseHeader", id=11)
    assert not answer.raw_output


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ErrorCode.NOT_FOUND, "UNAVAILABLE"),
        (ErrorCode.UNAVAILABLE, "UNAVAILABLE"),
        (ErrorCode.OVERLOADED, "UNAVAILABLE"),
        (ErrorCode.DEADLINE_EXCEEDED, "UNAVAILABLE"),
        (ErrorCode.MODEL_FAILED, "INTERNAL"),
        (ErrorCode.BAD_UPSTREAM, "INTERNAL"),
        (ErrorCode.INTERNAL, "INTERNAL"),
        (ErrorCode.UNREPRESENTABLE, "UNSUPPORTED"),
        (ErrorCode.MALFORMED, "INVALID_ARG"),
    ],
)
def test_errors_of_the_model(error: ErrorCode, code: str) -> None:
    told_code, text, answer = failed("Infer", WHOLE, InferenceError(error, "why"))
    assert (told_code, text, answer.meta_data.id) == (code, "why", 9)


@pytest.mark.parametrize("method", sorted(ENDPOINTS))
def test_bytes_that_are_no_message(method: str) -> None:
    request = asking(method.removeprefix(SERVICE), b"\x0a\xff")
    endpoint = ENDPOINTS[method]
    with pytest.raises(InferenceError) as caught:
        endpoint.open(request)
    answer = endpoint.fail(request, None, caught.value)
    assert answer.code == 13
    assert "Request" in answer.details
    assert not answer.message


# --- all that is not inference


def test_the_methods() -> None:
    names = ["Health", "Infer", "ModelControl", "Repository", "SharedMemoryControl", "Status", "StreamInfer"]
    assert set(ENDPOINTS) == {SERVICE + name for name in names}
    assert [method for method, one in ENDPOINTS.items() if one.streaming] == [f"{SERVICE}StreamInfer"]


@pytest.mark.parametrize("model", ["", "m"])
def test_status(model: str) -> None:
    asked = message("StatusRequest", model_name=model)
    found = opened("Status", asked)
    assert (found.action.operation, found.model) == (Operation.STATUS, model)
    config = message("ModelConfig", name="m", max_batch_size=8).SerializeToString()
    versions = (VersionStatus("1", ModelState.READY), VersionStatus("2", ModelState.UNAVAILABLE, "unloaded"))
    server = ServerStatus("inference:0", ServerState.READY, 5, {"m": ModelStatus("m", config, versions)})
    status = reported("Status", asked, server).server_status
    assert (status.id, status.version, status.uptime_ns, status.ready_state) == (
        "inference:0",
        "1.15.0",
        5,
        2,
    )
    model_status = status.model_status["m"]
    assert model_status.config.max_batch_size == 8
    assert {number: one.ready_state for number, one in model_status.version_status.items()} == {1: 1, 2: 2}
    assert model_status.version_status[2].ready_state_reason.message == "unloaded"


def test_status_of_an_unknown_model() -> None:
    error = InferenceError(ErrorCode.NOT_FOUND, "no status available for unknown model 'm'")
    code, text, _ = failed("Status", message("StatusRequest", model_name="m"), error)
    assert (code, text) == ("INVALID_ARG", "no status available for unknown model 'm'")


@pytest.mark.parametrize(("mode", "operation"), [("live", Operation.LIVE), ("ready", Operation.READY)])
@pytest.mark.parametrize("ready", [True, False])
def test_health(mode: str, operation: Operation, ready: bool) -> None:
    asked = message("HealthRequest", mode=mode)
    assert opened("Health", asked).action.operation is operation
    # to have asked is a success, whatever the answer
    assert reported("Health", asked, Readiness(ready, "" if ready else "not yet")).health is ready


@pytest.mark.parametrize(
    ("kind", "operation"), [("LOAD", Operation.MODEL_LOAD), ("UNLOAD", Operation.MODEL_UNLOAD)]
)
def test_model_control(kind: str, operation: Operation) -> None:
    asked = message("ModelControlRequest", model_name="m", type=kind)
    found = opened("ModelControl", asked)
    assert (found.action.operation, found.model) == (operation, "m")
    reported("ModelControl", asked, None)


def test_repository() -> None:
    asked = message("RepositoryRequest", index=True)
    assert opened("Repository", asked).action.operation is Operation.REPOSITORY_INDEX
    index = reported("Repository", asked, (ModelStatus("m"), ModelStatus("n"))).index
    assert [model.name for model in index.models] == ["m", "n"]


def test_shared_memory() -> None:
    place = {"shared_memory_key": "/k", "offset": 1}
    register = message(
        "SharedMemoryControlRequest",
        register={"name": "r", "system_shared_memory": place, "byte_size": 2},
    )
    found = opened("SharedMemoryControl", register)
    assert found.action.operation is Operation.SHARED_MEMORY_REGISTER
    assert found.argument == SharedMemoryRegion("r", "/k", 1, 2)
    reported("SharedMemoryControl", register, None)


def test_shared_memory_regions_travel_where_clients_look() -> None:
    asked = message("SharedMemoryControlRequest", status={})
    regions = (SharedMemoryRegion("r", "/k", 1, 2), SharedMemoryRegion("q", "/l", 0, 3))
    answer = reported("SharedMemoryControl", asked, regions)
    assert answer.HasField("shared_memory_status")
    # in field 2, as in a SharedMemoryStatus: as that the original client reads what it got
    status = parse("SharedMemoryStatus", answer.shared_memory_status.SerializeToString())
    assert [
        (one.name, one.system_shared_memory.shared_memory_key, one.system_shared_memory.offset, one.byte_size)
        for one in status.shared_memory_region
    ] == [("r", "/k", 1, 2), ("q", "/l", 0, 3)]


def test_no_region_at_all() -> None:
    answer = reported("SharedMemoryControl", message("SharedMemoryControlRequest", status={}), ())
    assert answer.HasField("shared_memory_status")
    assert not answer.shared_memory_status.ByteSize()


@pytest.mark.parametrize(
    ("rpc", "asked", "text"),
    [
        ("Health", message("HealthRequest", mode="x"), "unknown health mode 'x'"),
        ("Repository", message("RepositoryRequest"), "request type is not specified"),
        (
            "SharedMemoryControl",
            message("SharedMemoryControlRequest"),
            "unknown sharedmemorycontrol request type",
        ),
        ("ModelControl", message("ModelControlRequest", type=5), "unknown modelcontrol request type 5"),
    ],
)
def test_questions_of_no_kind(rpc: str, asked: Any, text: str) -> None:
    code, message_text, _ = failed(rpc, asked)
    assert (code, message_text) == ("UNKNOWN", text)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ErrorCode.NOT_FOUND, "NOT_FOUND"),
        (ErrorCode.ALREADY_EXISTS, "ALREADY_EXISTS"),
        (ErrorCode.INTERNAL, "INTERNAL"),
        (ErrorCode.UNSUPPORTED, "UNSUPPORTED"),
    ],
)
@pytest.mark.parametrize("rpc", ["ModelControl", "Repository", "SharedMemoryControl", "Health"])
def test_errors_of_operations(rpc: str, error: ErrorCode, code: str) -> None:
    asked = {
        "ModelControl": message("ModelControlRequest", model_name="m"),
        "Repository": message("RepositoryRequest", index=True),
        "SharedMemoryControl": message("SharedMemoryControlRequest", status={}),
        "Health": message("HealthRequest", mode="live"),
    }[rpc]
    assert failed(rpc, asked, InferenceError(error, "why"))[:2] == (code, "why")
