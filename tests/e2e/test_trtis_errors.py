"""What goes wrong, in version 1's own codes and words, over HTTP and over gRPC.

Users match on how these texts begin: the original clients do not show the code.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import pytest

from tests.e2e.daemon import Daemon
from tests.e2e.trtis_clients import clients_of
from tests.standins.trtis_client import Shared, Top, TrtisError
from tests.standins.trtis_contract import SERVICE, code_name, from_line, message
from tests.standins.trtis_grpc_client import TrtisGrpc
from tests.standins.trtis_http_client import Connection, TrtisHttp

A = np.arange(16, dtype=np.int32)[None]
SUMS = {"INPUT0": A, "INPUT1": A}
OUT = ["OUTPUT0"]
FLOATS = {"INPUT0": np.zeros(4, np.float32)}
STRINGS = {"INPUT0": np.array([[b"1"] * 16], object), "INPUT1": np.array([[b"2"] * 16], object)}


@pytest.fixture(scope="module")
def clients(v1: Daemon) -> Iterator[dict[str, Any]]:
    with clients_of(v1) as both:
        yield both


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, clients: dict[str, Any]) -> Any:
    return clients[request.param]


@dataclass(frozen=True)
class Case:
    """A faulty question to ``model`` (asked with the configuration of ``like``) and what it is answered."""

    code: str
    begins: str
    model: str = "simple"
    inputs: Any = None
    outputs: Any = tuple(OUT)
    version: int = -1
    change: Callable[[Any], object] | None = None
    like: str = ""
    batch_size: int | None = None


def drop_dims(header: Any) -> None:
    for entry in header.input:
        entry.ClearField("dims")


def wrong_size(header: Any) -> None:
    header.input[0].batch_byte_size = 63


def twice(header: Any) -> None:
    header.input[1].name = header.input[0].name


def other_input(header: Any) -> None:
    header.input[1].name = "OTHER"


def one_input(header: Any) -> None:
    del header.input[1]


def three_inputs(header: Any) -> None:
    header.input.add(name="INPUT2", dims=[16])


def same_output(header: Any) -> None:
    header.output.add(name="OUTPUT0")


def flat(header: Any) -> None:
    del header.input[0].dims[:]
    header.input[0].dims.extend([4, 4])


NOWHERE = Shared("nowhere", 64, dims=(16,))

CASES = {
    "unknown model": Case("UNAVAILABLE", "Request for unknown model: 'nobody' is not found", "nobody", like="simple"),
    "unknown version": Case("UNAVAILABLE", "Request for unknown model: 'simple' version 9 is not found", version=9),
    "version 0": Case("UNAVAILABLE", "Request for unknown model: 'simple' version 0 is not found", version=0),
    "batch size 0": Case("INVALID_ARG", "inference request batch-size must be >= 1 for 'simple'", batch_size=0),
    "batch too big": Case("INVALID_ARG", "inference request batch-size must be <= 8 for 'simple'", batch_size=9),
    "batch size 0 of a model without batches": Case(
        "INVALID_ARG", "inference request batch-size must be >= 1 for 'identity_fp32'", "identity_fp32", FLOATS, batch_size=0
    ),
    "batch too big of a model without batches": Case(
        "INVALID_ARG", "inference request batch-size must be <= 0 for 'identity_fp32'", "identity_fp32", FLOATS, batch_size=2
    ),
    "input missing": Case("INVALID_ARG", "expected 2 inputs but got 1 inputs for model 'simple'", change=one_input),
    "input too many": Case("INVALID_ARG", "expected 2 inputs but got 3 inputs for model 'simple'", change=three_inputs),
    "unknown input": Case("INVALID_ARG", "unexpected inference input 'OTHER' for model 'simple'", change=other_input),
    "unknown output": Case("INVALID_ARG", "unexpected inference output 'X' for model 'simple'", outputs=("X",)),
    "input twice": Case("INVALID_ARG", "input 'INPUT0' already exists in request", change=twice),
    "output twice": Case("INVALID_ARG", "output 'OUTPUT0' already requested", change=same_output),
    "shape": Case(
        "INVALID_ARG",
        "unexpected shape for input 'INPUT0' for model 'simple'. Expected [16], got [15]",
        inputs={"INPUT0": A[:, :15], "INPUT1": A},
    ),
    "rank": Case("INVALID_ARG", "unexpected shape for input 'INPUT0' for model 'simple'. Expected [16], got [4,4]", change=flat),
    "no dims for a free shape": Case(
        "INVALID_ARG",
        "model supports variable-size for input 'INPUT0', request must specify input shape for model 'identity_fp32'",
        "identity_fp32",
        FLOATS,
        change=drop_dims,
    ),
    "batch_byte_size": Case(
        "INVALID_ARG", "specific batch-byte-size for input 'INPUT0' does not match expected byte-size", change=wrong_size
    ),
    "classes of BOOL": Case(
        "INVALID_ARG",
        "class result not available for output",
        "identity_bool",
        {"INPUT0": np.array([True])},
        {"OUTPUT0": Top(1)},
    ),
    "classes of FP16": Case(
        "INVALID_ARG",
        "class result not available for output",
        "identity_fp16",
        {"INPUT0": np.zeros(2, np.float16)},
        {"OUTPUT0": Top(1)},
    ),
    "classes of STRING": Case(
        "INVALID_ARG",
        "class result not available for output",
        "identity_bytes",
        {"INPUT0": np.array([b"a"], object)},
        {"OUTPUT0": Top(1)},
    ),
    "unknown region for an input": Case(
        "NOT_FOUND", "Unable to find shared memory region: 'nowhere'", inputs={"INPUT0": A, "INPUT1": NOWHERE}, batch_size=1
    ),
    "unknown region for an output": Case(
        "NOT_FOUND", "Unable to find shared memory region: 'nowhere'", outputs={"OUTPUT0": NOWHERE}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_question_that_is_wrong(client: Any, name: str) -> None:
    case = CASES[name]
    context = client.context(case.like or case.model, case.version)
    context.model = case.model
    asked = (case.inputs or SUMS, case.outputs)
    with pytest.raises(TrtisError) as caught:
        context.infer(*asked, batch_size=case.batch_size, change=case.change, id=41)
    assert caught.value.code == case.code
    assert caught.value.message.startswith(case.begins), caught.value.message
    assert caught.value.server_id == "replica:7" and caught.value.request_id > 0
    # the connection and the server go on
    context.model, context.version = case.like or case.model, -1
    assert client.infer("simple", SUMS, OUT).outputs["OUTPUT0"].tolist() == (A + A).tolist()


@pytest.mark.parametrize(
    ("length", "begins"),
    [
        (0, "unexpected size for input 'INPUT0', expecting 64 bytes for model 'simple'"),
        (100, "unexpected size for input 'INPUT1', expecting 28 bytes for model 'simple'"),
        (127, "unexpected size for input 'INPUT1', expecting 1 bytes for model 'simple'"),
        (129, "unexpected additional input data for model 'simple'"),
    ],
)
def test_a_body_that_does_not_add_up(clients: dict[str, Any], length: int, begins: str) -> None:
    with clients["http"].context("simple") as context, pytest.raises(TrtisError) as caught:
        context.infer(SUMS, OUT, body=bytes(length))
    assert caught.value.code == "INVALID_ARG" and caught.value.message.startswith(begins)


@pytest.mark.parametrize(
    ("sizes", "begins"),
    [
        ([], "expected tensor data for at least"),
        ([64], "expected tensor data for at least"),
        ([64, 63], "unexpected size 63 for input 'INPUT1', expecting 64 for model 'simple'"),
        ([65, 64], "unexpected size 65 for input 'INPUT0', expecting 64 for model 'simple'"),
    ],
)
def test_raw_inputs_that_do_not_add_up(clients: dict[str, Any], sizes: list[int], begins: str) -> None:
    with pytest.raises(TrtisError) as caught:
        clients["grpc"].infer("simple", SUMS, OUT, bodies=[bytes(size) for size in sizes])
    assert caught.value.code == "INVALID_ARG" and caught.value.message.startswith(begins)


def test_surplus_raw_inputs_are_ignored(clients: dict[str, Any]) -> None:
    answer = clients["grpc"].infer("simple", SUMS, OUT, bodies=[A.tobytes(), A.tobytes(), b"more"])
    assert (answer.outputs["OUTPUT0"] == A + A).all()


@pytest.mark.parametrize(
    ("contents", "begins"),
    [
        (b"\x01\0\0\x001" * 15 + b"\x01\0\0", "incomplete string data for inference input"),
        (b"\x01\0\0\x001" * 15 + b"\x09\0\0\x001", "incomplete string data for inference input"),
        (b"\x01\0\0\x001" * 15, "unexpected number of string elements"),
        (b"\x01\0\0\x001" * 17, "unexpected number of string elements"),
        (b"", "unexpected number of string elements"),
    ],
    ids=["cut length", "cut string", "too few", "too many", "none"],
)
def test_strings_that_do_not_add_up(client: Any, contents: bytes, begins: str) -> None:
    def tell(header: Any) -> None:
        header.input[0].batch_byte_size = len(contents)

    parts = [contents, b"\x01\0\0\x002" * 16]
    how = {"bodies": parts} if isinstance(client, TrtisGrpc) else {"body": b"".join(parts)}
    with pytest.raises(TrtisError) as caught:
        client.infer("simple_string", STRINGS, OUT, change=tell, **how)
    assert caught.value.code == "INVALID_ARG" and caught.value.message.startswith(begins), (
        caught.value.message
    )


def test_errors_echo_the_id_alone(clients: dict[str, Any]) -> None:
    context = clients["grpc"].context("simple")
    answer = clients["grpc"].raw_call("Infer", context.request(SUMS, ["X"], id=41))
    assert code_name(answer.request_status) == "INVALID_ARG"
    assert answer.meta_data == message("InferResponseHeader", id=41) and not answer.raw_output
    reply = clients["http"].exchange(
        "POST",
        "/api/infer/simple?format=binary",
        ['NV-InferRequest:batch_size: 1 id: 41 output { name: "X" }'],
    )
    assert reply.status == 400 and reply.body == b""
    assert reply.find("NV-InferResponse") == "id: 41"
    assert reply.find("Content-Type") == "application/octet-stream"
    reply = clients["http"].exchange(
        "POST", "/api/infer/nobody?format=binary", ["NV-InferRequest:batch_size: 1"]
    )
    assert reply.find("NV-InferResponse") == ""


def test_unset_version_over_grpc_is_version_0(clients: dict[str, Any]) -> None:
    asked = clients["grpc"].context("simple").request(SUMS, OUT)
    asked.ClearField("model_version")
    answer = clients["grpc"].raw_call("Infer", asked)
    assert code_name(answer.request_status) == "UNAVAILABLE"
    assert answer.request_status.msg.startswith("Request for unknown model: 'simple' version 0 is not found")


def test_an_unknown_model_has_no_status(client: Any) -> None:
    with pytest.raises(TrtisError) as caught:
        client.status("nobody")
    assert caught.value.code == "INVALID_ARG"
    assert caught.value.message == "no status available for unknown model 'nobody'"


# ---- HTTP alone


BARE = [
    ("GET", "/api/health"), ("GET", "/api/health/foo"),
    ("GET", "/api/health/live/"), ("GET", "/api/status/simple/1"), ("POST", "/api/infer"), ("POST", "/api/infer/"),
    ("POST", "/api/infer/simple/1/"), ("POST", "/api/infer/simple/-1"), ("POST", "/api/infer/simple/x"),
    ("POST", "/api/modelcontrol/reload/simple"), ("POST", "/api/modelcontrol/load/"), ("GET", "/api/repository"),
    ("GET", "/api/repository/other"), ("POST", "/api/sharedmemorycontrol/unregister/"),
    ("POST", "/api/sharedmemorycontrol/register/r/k/0/1"), ("GET", "/api/profile?cmd=start"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "target"), BARE)
def test_whatever_is_no_endpoint_is_a_bare_400(v1: Daemon, method: str, target: str) -> None:
    with Connection(v1.addresses[0]) as connection:
        reply = connection.send(method, target)
        assert reply.status == 400 and reply.body == b"" and reply.find("NV-Status") is None
        # and the connection goes on
        assert connection.send("GET", "/api/health/live").status == 200


@pytest.mark.parametrize("target", ["/", "/api", "/nothing", "/v2/health/live"])
def test_a_listener_of_version_1_alone_has_nothing_else(v1: Daemon, target: str) -> None:
    reply = TrtisHttp(v1.addresses[2]).exchange("GET", target)
    assert reply.status == 400 and reply.body == b"" and reply.find("NV-Status") is None


WRONG_METHODS = [
    ("POST", "/api/health/live"), ("POST", "/api/status"), ("GET", "/api/infer/simple"), ("DELETE", "/api/status/simple"),
    ("GET", "/api/modelcontrol/load/simple"), ("POST", "/api/repository/index"), ("PUT", "/api/infer/simple/1"),
    ("GET", "/api/sharedmemorycontrol/unregisterall"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "target"), WRONG_METHODS)
def test_a_wrong_method_is_a_bare_405(v1: Daemon, method: str, target: str) -> None:
    reply = TrtisHttp(v1.addresses[0]).exchange(method, target)
    assert reply.status == 405 and reply.find("NV-Status") is None


@pytest.mark.parametrize(
    "header",
    [
        "batch_size: one",
        "nothing_like_it: 1",
        "batch_size: 1 }",
        "input {",
        'input { name: "x }',
        "\xff\xfe",
        "{",
    ],
)
def test_a_header_that_does_not_parse_is_a_bare_400(v1: Daemon, header: str) -> None:
    with Connection(v1.addresses[0]) as connection:
        reply = connection.send("POST", "/api/infer/simple", [f"NV-InferRequest:{header}"], bytes(128))
        assert reply.status == 400 and reply.body == b"" and reply.find("NV-Status") is None
        assert connection.send("GET", "/api/health/live").status == 200


def test_a_missing_header_is_reported_in_the_body(v1: Daemon) -> None:
    reply = TrtisHttp(v1.addresses[0]).exchange("POST", "/api/infer/simple", (), bytes(128))
    assert reply.status == 400 and reply.find("NV-Status") is None
    assert b"NV-InferRequest" in reply.body


def test_a_body_that_is_refused_unread_has_a_number_too(clients: dict[str, Any]) -> None:
    client = clients["http"]
    number = client.infer("simple", SUMS, []).request_id + 1
    host, port = client.address.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        head = f"POST /api/infer/simple HTTP/1.1\r\nHost: a\r\nContent-Length: {2**40}\r\n"
        connection.sendall(head.encode() + b"NV-InferRequest:batch_size: 1\r\n\r\n")
        answer = connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 400 ") and b"max_request_bytes" in answer
    assert f'server_id: "replica:7" request_id: {number}\r\n'.encode() in answer


def test_bytes_that_are_no_http_end_the_connection(v1: Daemon) -> None:
    host, port = v1.addresses[0].split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"POST /api/infer/simple HTTP/1.1\r\nNV-InferRequest batch_size\r\n\r\n")
        assert b" 400 " in connection.recv(4096).split(b"\r\n")[0]
    assert TrtisHttp(v1.addresses[0]).health("live")


def test_odd_bytes_in_a_model_name(v1: Daemon) -> None:
    for name in ("%00", "%2e%2e", "sim%70le", "m" * 2000):
        reply = TrtisHttp(v1.addresses[0]).exchange(
            "POST", f"/api/infer/{name}", ["NV-InferRequest:batch_size: 1"]
        )
        status = from_line("RequestStatus", reply.find("NV-Status") or "")
        assert reply.status == 400 and code_name(status) == "UNAVAILABLE"
        assert status.msg == f"Request for unknown model: '{name}' is not found"


# ---- gRPC alone


@pytest.mark.parametrize(
    ("method", "request_type", "fields", "begins"),
    [
        ("Health", "HealthRequest", {"mode": "x"}, "unknown health mode 'x'"),
        ("Health", "HealthRequest", {}, "unknown health mode ''"),
        ("Repository", "RepositoryRequest", {}, "request type is not specified"),
        ("SharedMemoryControl", "SharedMemoryControlRequest", {}, "unknown sharedmemorycontrol request type"),
    ],
)
def test_a_call_without_meaning(
    clients: dict[str, Any], method: str, request_type: str, fields: Any, begins: str
) -> None:
    answer = clients["grpc"].raw_call(method, message(request_type, **fields))
    assert code_name(answer.request_status) == "UNKNOWN" and answer.request_status.msg.startswith(begins)


def test_only_bytes_that_are_no_message_fail_the_call(v1: Daemon) -> None:
    with grpc.insecure_channel(v1.addresses[1]) as channel:
        for method in ("Infer", "Status", "ModelControl"):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(SERVICE + method)(b"\xff\xff\xff", timeout=10)
            assert caught.value.code() is grpc.StatusCode.INTERNAL
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(SERVICE + "Profile")(b"", timeout=10)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
