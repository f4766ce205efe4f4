"""Version 1 clients ask the daemon for inferences, over HTTP and over gRPC."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import requests
from google.protobuf import text_format

from tests.e2e.daemon import Daemon
from tests.e2e.trtis_clients import clients_of
from tests.e2e.trtis_models import DATATYPES, LABELS, WIDE
from tests.standins.trtis_client import Top
from tests.standins.trtis_contract import NUMPY, from_line, message, one_line, parse
from tests.standins.trtis_grpc_client import TrtisGrpc

TRANSPORTS = ["http", "grpc"]
A = np.arange(48, dtype=np.int32).reshape(3, 16)
B = np.full((3, 16), 5, np.int32)
SUMS = {"INPUT0": A, "INPUT1": B}
BOTH = ["OUTPUT0", "OUTPUT1"]


@pytest.fixture(scope="module")
def clients(v1: Daemon) -> Iterator[dict[str, Any]]:
    with clients_of(v1) as both:
        yield both


@pytest.fixture(params=TRANSPORTS)
def client(request: pytest.FixtureRequest, clients: dict[str, Any]) -> Any:
    return clients[request.param]


def texts(numbers: Any) -> Any:
    return np.array([[str(number).encode() for number in row] for row in numbers], object)


def sample(name: str) -> Any:
    if name == "bytes":
        return np.array([b"abc", b"", b"\xff\xfe\x00r"], object)
    return np.array([0, 1, 1] if name == "bool" else [0, 1, 100], NUMPY[f"TYPE_{DATATYPES[name]}"])


def test_a_model_with_batches(client: Any) -> None:
    for rows in (1, 3):
        given = {name: array[:rows] for name, array in SUMS.items()}
        answer = client.infer("simple", given, BOTH)
        assert (answer.outputs["OUTPUT0"] == A[:rows] + B[:rows]).all()
        assert (answer.outputs["OUTPUT1"] == A[:rows] - B[:rows]).all()
        assert (answer.model_name, answer.model_version, answer.batch_size) == ("simple", 1, rows)
        assert answer.server_id == "replica:7"


def test_the_requested_version_answers(client: Any) -> None:
    given = {"INPUT0": np.array([1, 2], np.int32)}
    for version, answering in ((-1, 7), (1, 1), (3, 3), (7, 7)):
        answer = client.infer("multi_ver", given, ["OUTPUT0"], version=version)
        assert answer.model_version == answering and answer.outputs["OUTPUT0"].tolist() == [1, 2]


def test_no_output_is_returned_unless_requested(client: Any) -> None:
    assert client.infer("simple", SUMS, []).outputs == {}
    assert list(client.infer("simple", SUMS, ["OUTPUT1"]).outputs) == ["OUTPUT1"]


def test_the_order_of_inputs_is_free(client: Any) -> None:
    context = client.context("simple")

    def swap(header: Any) -> None:
        entries = [type(entry).FromString(entry.SerializeToString()) for entry in header.input]
        del header.input[:]
        header.input.extend(reversed(entries))

    bodies = [B.tobytes(), A.tobytes()]
    how = {"bodies": bodies} if isinstance(client, TrtisGrpc) else {"body": b"".join(bodies)}
    answer = context.infer(SUMS, BOTH, change=swap, **how)
    assert (answer.outputs["OUTPUT1"] == A - B).all()


def test_dims_are_optional_where_the_model_fixes_them(client: Any) -> None:
    def forget(header: Any) -> None:
        for entry in header.input:
            entry.ClearField("dims")

    assert (client.infer("simple", SUMS, BOTH, change=forget).outputs["OUTPUT0"] == A + B).all()


def test_sizes_may_be_given_where_they_are_known(client: Any) -> None:
    def tell(header: Any) -> None:
        for entry in header.input:
            entry.batch_byte_size = A.nbytes

    assert (client.infer("simple", SUMS, BOTH, change=tell).outputs["OUTPUT0"] == A + B).all()


def test_strings(client: Any) -> None:
    given = {"INPUT0": texts(A), "INPUT1": texts(B)}
    answer = client.infer("simple_string", given, BOTH)
    assert answer.outputs["OUTPUT0"].tolist() == texts(A + B).tolist()
    assert answer.outputs["OUTPUT1"].tolist() == texts(A - B).tolist()


@pytest.mark.parametrize("name", DATATYPES)
def test_every_datatype_arrives_as_it_left(client: Any, name: str) -> None:
    array = sample(name)
    got = client.infer(f"identity_{name}", {"INPUT0": array}, ["OUTPUT0"]).outputs["OUTPUT0"]
    assert got.tolist() == array.tolist() and got.dtype == array.dtype


@pytest.mark.parametrize("name", ["fp32", "bytes"])
def test_a_tensor_without_elements(client: Any, name: str) -> None:
    got = client.infer(f"identity_{name}", {"INPUT0": sample(name)[:0]}, ["OUTPUT0"]).outputs["OUTPUT0"]
    assert got.shape == (0,)


def test_classes_with_labels(client: Any) -> None:
    rows = np.array([[1, 5, 2, 4, 3], [5, 4, 3, 2, 1]], np.float32)
    answer = client.infer("classy", {"DATA": rows}, {"PROB": Top(2)})
    assert answer.outputs["PROB"] == [[(1, 5.0, "bee"), (3, 4.0, "dog")], [(0, 5.0, "ant"), (1, 4.0, "bee")]]
    answer = client.infer("classy", {"DATA": rows[:1]}, {"PROB": Top(99)})
    assert [label for _, _, label in answer.outputs["PROB"][0]] == [LABELS[i] for i in (1, 3, 4, 2, 0)]
    # a count of 0 is the raw output
    assert client.infer("classy", {"DATA": rows}, {"PROB": Top(0)}).outputs["PROB"].tolist() == rows.tolist()


@pytest.mark.parametrize("order", [("OUTPUT0", "OUTPUT1"), ("OUTPUT1", "OUTPUT0")])
def test_classes_and_raw_outputs_in_one_answer(client: Any, order: tuple[str, str]) -> None:
    for classified in order:
        asked = {name: Top(2) if name == classified else None for name in order}
        answer = client.infer("simple", SUMS, asked)
        computed = {"OUTPUT0": A + B, "OUTPUT1": A - B}
        for name in order:
            if name == classified:
                best = [[(15, float(row[15]), ""), (14, float(row[14]), "")] for row in computed[name]]
                assert answer.outputs[name] == best
            else:
                assert (answer.outputs[name] == computed[name]).all()


@pytest.mark.parametrize("name", [name for name in DATATYPES if name not in ("bool", "fp16", "bytes")])
def test_classes_of_a_model_without_batches(client: Any, name: str) -> None:
    given = np.array([1, 9, 3, 9], NUMPY[f"TYPE_{DATATYPES[name]}"])
    answer = client.infer(f"identity_{name}", {"INPUT0": given}, {"OUTPUT0": Top(3)})
    assert answer.outputs["OUTPUT0"] == [[(1, 9.0, ""), (3, 9.0, ""), (2, 3.0, "")]]


def test_ten_thousand_classes_fit_into_what_clients_read(client: Any) -> None:
    """libcurl takes 100 KB of a header line; the classes stand in the body alone."""
    rows = np.random.default_rng(3).permuted(np.tile(np.arange(WIDE, dtype=np.float32), (8, 1)), axis=1)
    classes = client.infer("wide", {"DATA": rows}, {"PROB": Top(WIDE)}).outputs["PROB"]
    assert [len(entry) for entry in classes] == [WIDE] * 8
    for row, entry in zip(rows, classes, strict=True):
        assert [index for index, _, _ in entry] == np.argsort(-row, kind="stable").tolist()
        assert entry[0] == (int(row.argmax()), WIDE - 1.0, f"class {row.argmax()}")


def test_sixty_four_requests_at_once(client: Any) -> None:
    def ask(number: int) -> bool:
        given = {"INPUT0": A + number, "INPUT1": B}
        return bool((client.infer("simple", given, ["OUTPUT0"]).outputs["OUTPUT0"] == A + number + B).all())

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(64)))


def test_a_connection_is_kept_over_answers_and_errors(clients: dict[str, Any]) -> None:
    with clients["http"].context("simple") as context:
        for _ in range(3):
            assert (context.infer(SUMS, BOTH).outputs["OUTPUT0"] == A + B).all()
            refused = context.connection.send("POST", "/api/infer/nobody", ["NV-InferRequest:batch_size: 1"])
            assert refused.status == 400


def test_megabytes(client: Any) -> None:
    given = np.random.default_rng(5).random(3_000_000, dtype=np.float32)
    got = client.infer("identity_fp32", {"INPUT0": given}, ["OUTPUT0"]).outputs["OUTPUT0"]
    assert got.tobytes() == given.tobytes()


def test_ids_of_the_client_come_back(client: Any) -> None:
    assert client.infer("simple", SUMS, [], id=2**64 - 1).id == 2**64 - 1


def test_options_that_this_model_has_no_use_for_are_ignored(client: Any) -> None:
    answer = client.infer(
        "simple", SUMS, BOTH, flags=3, correlation_id=2**63, priority=9, timeout_microseconds=1
    )
    assert (answer.outputs["OUTPUT0"] == A + B).all()


def test_requests_are_numbered_over_all_transports(clients: dict[str, Any]) -> None:
    numbers = []
    for _ in range(5):
        for each in clients.values():
            numbers.append(each.infer("simple", SUMS, []).request_id)
    assert numbers == sorted(set(numbers)) and numbers[0] > 0
    with ThreadPoolExecutor(8) as pool:
        asked = [client for client in clients.values() for _ in range(20)]
        parallel = list(pool.map(lambda each: each.infer("simple", SUMS, []).request_id, asked))
    assert len(set(parallel)) == len(parallel) and min(parallel) > numbers[-1]


# ---- streams


def test_a_thousand_requests_on_a_stream_with_errors_among_them(clients: dict[str, Any]) -> None:
    client = clients["grpc"]
    context, strings = client.context("simple"), client.context("simple_string")
    expected: list[Any] = []

    def questions() -> Iterator[Any]:
        for number in range(1, 1001):
            left, right = A + number, B
            if number % 7 == 3:
                expected.append("unexpected inference output")
                yield context.request({"INPUT0": left, "INPUT1": right}, ["NOTHING"], id=number)
            elif number % 7 == 5:
                expected.append("Request for unknown model")
                asked = context.request({"INPUT0": left, "INPUT1": right}, BOTH, id=number)
                asked.model_name = "nobody"
                yield asked
            elif number % 7 == 6:
                expected.append(texts(left + right).tolist())
                given = {"INPUT0": texts(left), "INPUT1": texts(right)}
                yield strings.request(given, ["OUTPUT0"], id=number)
            else:
                expected.append((left + right).tolist())
                yield context.request({"INPUT0": left, "INPUT1": right}, ["OUTPUT0"], id=number)

    answers = list(client.stream(questions()))
    assert [answer.meta_data.id for answer in answers] == list(range(1, 1001))
    for answer, wanted in zip(answers, expected, strict=True):
        if isinstance(wanted, str):
            assert answer.request_status.msg.startswith(wanted) and not answer.raw_output
        else:
            reader = strings if answer.meta_data.model_name == "simple_string" else context
            assert reader.read(answer).outputs["OUTPUT0"].tolist() == wanted
    numbers = [answer.request_status.request_id for answer in answers]
    assert numbers == sorted(set(numbers))


def test_a_stream_answers_while_it_is_open(clients: dict[str, Any]) -> None:
    client = clients["grpc"]
    context = client.context("simple")
    answered: SimpleQueue[int] = SimpleQueue()

    def questions() -> Iterator[Any]:
        for number in range(1, 4):
            yield context.request(SUMS, BOTH, id=number)
            # the next question comes only after the answer: a server that waits for the end hangs here
            assert answered.get(timeout=20) == number

    for answer in client.stream(questions()):
        answered.put(answer.meta_data.id)


# ---- by hand


def test_a_request_by_hand_gets_the_text_trailer(v1: Daemon) -> None:
    """No format, no Content-Type: what people write with curl and requests."""
    header = 'batch_size: 1 input { name: "DATA" } output { name: "PROB" cls { count: 2 } }'
    reply = requests.post(
        f"http://{v1.addresses[0]}/api/infer/classy",
        data=np.array([1, 5, 2, 4, 3], np.float32).tobytes(),
        headers={"NV-InferRequest": header, "Content-Type": None},  # type: ignore[dict-item]
        timeout=10,
    )
    assert reply.status_code == 200 and reply.text.endswith("\n")
    trailer = text_format.Parse(reply.text, message("InferResponseHeader"))
    assert [c.label for c in trailer.output[0].batch_classes[0].cls] == ["bee", "dog"]


@pytest.mark.parametrize("query", ["", "?format=text", "?format=anything"])
def test_raw_bytes_stand_before_the_text_trailer(v1: Daemon, query: str) -> None:
    given = struct.pack("<3f", 1, 2, 3)
    reply = requests.post(
        f"http://{v1.addresses[0]}/api/infer/identity_fp32/1{query}",
        data=given,
        headers={
            "NV-InferRequest": 'batch_size: 1 input { name: "INPUT0" dims: 3 } output { name: "OUTPUT0" }'
        },
        timeout=10,
    )
    assert reply.content.startswith(given)
    trailer = text_format.Parse(reply.content[12:].decode(), message("InferResponseHeader"))
    assert trailer == from_line("InferResponseHeader", reply.headers["NV-InferResponse"])
    assert trailer.output[0].raw.batch_byte_size == 12
    assert reply.headers["Content-Type"] == "application/octet-stream"


@pytest.mark.parametrize(
    "header",
    [
        "batch_size:1,input{name:'INPUT0',dims:[2]},output{name:'OUTPUT0'}",
        "batch_size: 1; input: < name: \"INPUT\" '0' dims: 2 > output < name: 'OUTPUT\\060' >",
        "input { dims: 2 name: 'INPUT0' } batch_size: 0x1 output { name: 'OUTPUT0' } # done",
        "batch_size: 1 input { name: 'INPUT0'" + " " * 60_000 + "dims: 2 } output { name: 'OUTPUT0' }",
    ],
    ids=["commas and lists", "other braces", "any order", "60 KB"],
)
def test_the_header_may_be_any_text_format(v1: Daemon, header: str) -> None:
    reply = requests.post(
        f"http://{v1.addresses[0]}/api/infer/identity_fp32?format=binary",
        data=struct.pack("<2f", 1, 2),
        headers={"nv-inferrequest": header},
        timeout=10,
    )
    assert reply.status_code == 200, reply.headers
    assert parse("InferResponseHeader", reply.content[8:]).output[0].raw.dims == [2]
    assert one_line(from_line("RequestStatus", reply.headers["nv-status"])).startswith(
        "code: SUCCESS server_id"
    )
