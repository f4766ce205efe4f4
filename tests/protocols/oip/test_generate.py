"""generate and generate_stream: flat JSON in, flat JSON or server-sent events out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import orjson
import pytest

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import HttpAnswer, HttpRequest
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ServerMetadata,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router
from tests.streaming_models import AddSub, Repeat

EVENTS = "text/event-stream; charset=utf-8"


class Writer(Repeat):
    """A ``Target`` that says its text as often as the parameter REPETITION asks, three times where it
    does not; the text FAIL is an error each time."""

    def __init__(self, dims: tuple[int, ...] = (1,), datatype: Datatype = Datatype.BYTES) -> None:
        super().__init__("writer")
        self._spec = TensorSpec("text_input", datatype, dims)
        self.asked: list[InferRequest] = []

    async def stream(self, request: InferRequest) -> AsyncIterator[InferResponse]:
        self.asked.append(request)
        if not request.inputs:
            raise InferenceError(ErrorCode.INVALID_TENSOR, "missing required input(s) ['text_input']")
        given = request.inputs[0]
        for index in range(int(request.parameters.get("REPETITION", 3))):
            if given.datatype is Datatype.BYTES and given.elements()[0] == b"FAIL":
                error = InferenceError(ErrorCode.MODEL_FAILED, "gen failed")
                yield InferResponse(self.name, (), "1", request.id, final=False, error=error)
                continue
            if given.datatype is Datatype.BYTES:
                said = Tensor.from_numpy("text_output", np.array([f"hi{index}"], object))
            else:
                said = given.renamed("text_output")
            yield InferResponse(self.name, (said,), "1", request.id, final=False)
        yield InferResponse(self.name, (), "1", request.id)

    async def signature(self, version: str = "") -> Signature:
        return Signature((self._spec,), (TensorSpec("text_output", self._spec.datatype, (-1,)),))


class Crashing(Writer):
    """A ``Target`` that fails at once, or after one response."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._after = after

    async def stream(self, request: InferRequest) -> AsyncIterator[InferResponse]:
        for _ in range(self._after):
            said = Tensor.from_numpy("text_output", np.array(["hi"], object))
            yield InferResponse(self.name, (said,), "1", final=False)
        raise InferenceError(ErrorCode.MODEL_FAILED, "out of memory")


def ask(
    model: Repeat, method: str, body: Any, headers: dict[str, str] | None = None, version: str = ""
) -> tuple[int, dict[str, str], bytes, bool]:
    """Status, headers and body of the answer, and whether it was streamed."""
    service = Service(Router(ModelCatalog({model.name: model})), ServerMetadata("interlingua", "0"))
    server = Pipeline(service, "test", [*DIALECTS["oip"].bindings.values()]).handlers["http"]
    path = f"/v2/models/{model.name}{version}/{method}"
    request = HttpRequest(
        "POST", path, headers=headers or {}, body=body if isinstance(body, bytes) else orjson.dumps(body)
    )

    async def exchange() -> tuple[HttpAnswer, bytes, bool]:
        answer = server.head(request) or await server.serve(request)
        if isinstance(answer.parts, AsyncIterator):
            return answer, b"".join([bytes(part) async for part in answer.parts]), True
        return answer, b"".join(answer.parts), False

    answer, told, streamed = asyncio.run(exchange())
    return answer.status, dict(answer.headers), told, streamed


def event(document: str) -> bytes:
    return f"data: {document}\n\n".encode()


def test_one_response_is_the_answer() -> None:
    status, headers, body, streamed = ask(Writer(), "generate", {"text_input": "x", "REPETITION": 1})
    assert (status, headers["Content-Type"], streamed) == (200, "application/json", True)
    assert body == b'{"model_name":"writer","model_version":"1","text_output":"hi0"}'


def test_the_id_is_written_and_members_are_sorted() -> None:
    body = {"id": "x1", "INPUT0": [1, 2], "INPUT1": [3, 4]}
    told = ask(AddSub(), "generate", body, version="/versions/1")[2]
    assert told == (
        b'{"OUTPUT0":[4.0,6.0],"OUTPUT1":[-2.0,-2.0],"id":"x1","model_name":"add_sub","model_version":"1"}'
    )


@pytest.mark.parametrize("count", [0, 3])
def test_any_other_number_of_responses_is_none(count: int) -> None:
    status, _, body, _ = ask(Writer(), "generate", {"text_input": "x", "REPETITION": count})
    assert status == 200
    assert "exactly 1 response" in orjson.loads(body)["error"]


def test_events() -> None:
    status, headers, body, streamed = ask(Writer(), "generate_stream", {"text_input": "x", "REPETITION": 2})
    assert (status, headers["Content-Type"], streamed) == (200, EVENTS, True)
    head = '{"model_name":"writer","model_version":"1","text_output":'
    assert body == event(head + '"hi0"}') + event(head + '"hi1"}')


def test_no_events() -> None:
    status, headers, body, streamed = ask(Writer(), "generate_stream", {"text_input": "x", "REPETITION": 0})
    assert (status, headers["Content-Type"], body, streamed) == (200, EVENTS, b"", True)


def test_errors_of_responses_are_events_and_the_first_has_the_status() -> None:
    status, headers, body, _ = ask(Writer(), "generate_stream", {"text_input": "FAIL", "REPETITION": 2})
    assert (status, headers["Content-Type"]) == (400, EVENTS)
    assert body == event('{"error":"gen failed"}') * 2
    status, headers, body, _ = ask(Writer(), "generate", {"text_input": "FAIL", "REPETITION": 2})
    assert (status, headers["Content-Type"], body) == (500, "application/json", b'{"error":"gen failed"}')


@pytest.mark.parametrize(("after", "status"), [(0, 400), (1, 200)])
def test_a_model_that_breaks_off(after: int, status: int) -> None:
    found, headers, body, _ = ask(Crashing(after), "generate_stream", {"text_input": "x"})
    assert (found, headers["Content-Type"]) == (status, EVENTS)
    assert body.endswith(event('{"error":"out of memory"}'))
    assert body.count(b"data: ") == after + 1


def test_what_is_no_input_is_a_parameter() -> None:
    model = Writer()
    ask(
        model,
        "generate",
        {
            "text_input": "x",
            "stream": False,
            "parameters": {"a": 1, "priority": 2},
            "t": 0.5,
            "sequence_id": 7,
        },
    )
    (asked,) = model.asked
    assert asked.parameters == {"stream": False, "a": 1, "t": 0.5}
    assert asked.sequence is not None
    assert (asked.priority, asked.sequence.id) == (2, 7)


@pytest.mark.parametrize(
    ("dims", "value", "shape"),
    [
        ((1,), 5, (1,)),
        ((1,), [5], (1,)),
        ((-1,), [1, 2, 3], (3,)),
        ((-1,), [], (0,)),
        ((-1, 2), [1, 2, 3, 4], (2, 2)),
        ((-1, -1), [1, 2, 3], (1, 3)),
        ((2, -1), [1, 2, 3, 4, 5, 6], (2, 3)),
        ((), 5, ()),
        ((1,), [1, 2], None),
        ((-1, 2), [1, 2, 3], None),
        ((2,), 1, None),
        ((), [1, 2], None),
        ((0,), [1], None),
    ],
)
def test_values_take_the_shape_of_the_model(dims: Any, value: Any, shape: Any) -> None:
    model = Writer(dims, Datatype.INT32)
    status, _, body, _ = ask(model, "generate", {"text_input": value, "REPETITION": 1})
    if shape is None:
        assert status == 400
        assert "can not convert input 'text_input' to tensor with proper shape" in orjson.loads(body)["error"]
    else:
        assert status == 200, body
        assert model.asked[0].inputs[0].shape == shape


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not JSON"),
        (b"[]", "not an object"),
        ({"text_input": None}, "element 0 must be a string, got null"),
        ({"text_input": 1}, "element 0 must be a string"),
        ({"text_input": ["a", "b"]}, "proper shape"),
        ({"text_input": {"a": 1}}, "got an object"),
        ({"text_input": "x", "foo": {"a": 1}}, "parameter 'foo'"),
        ({"text_input": "x", "id": 1}, "'id' must be a string"),
        ({"text_input": "x", "parameters": 1}, "Expected JSON object for keyword: 'parameters'"),
        ({}, "missing required input(s)"),
    ],
)
@pytest.mark.parametrize("method", ["generate", "generate_stream"])
def test_what_is_refused_before_the_model_runs(method: str, body: Any, words: str) -> None:
    status, headers, told, streamed = ask(Writer(), method, body)
    assert (status, headers["Content-Type"], streamed) == (400, "application/json", False)
    assert words in orjson.loads(told)["error"]


def test_no_content_coding() -> None:
    assert ask(Writer(), "generate", b"...", {"content-encoding": "gzip"})[0] == 400


@pytest.mark.parametrize("datatype", [Datatype.FP16, Datatype.BF16])
def test_datatypes_without_a_json_form(datatype: Datatype) -> None:
    status, _, body, _ = ask(Writer((1,), datatype), "generate", {"text_input": 1})
    assert status == 400
    assert "use the binary data format for input text_input" in orjson.loads(body)["error"]


def test_the_stages_are_timed() -> None:
    assert ask(Writer(), "generate", {"text_input": "x"})[1]["Server-Timing"].startswith("decode;dur=")


@pytest.mark.parametrize("method", ["generate", "generate_stream"])
@pytest.mark.parametrize(
    "body",
    [
        b'{"text_input": "a", "text_input": "b"}',
        b'{"text_input": "a", "parameters": {"text_input": "b"}}',
    ],
    ids=["twice", "among the parameters too"],
)
def test_an_input_that_comes_twice_is_refused(method: str, body: bytes) -> None:
    """Triton 2.51: 400, ``input 'text_input' already exists in request``."""
    model = Writer()
    answer = ask(model, method, body)
    assert answer[0] == 400
    assert b"input 'text_input' already exists in request" in answer[2]
    assert not model.asked


def test_an_input_among_the_parameters_is_an_input() -> None:
    """Triton 2.51 takes members of ``parameters`` for inputs where they have the name of one."""
    model = Writer()
    status, *_ = ask(model, "generate_stream", b'{"parameters": {"text_input": "zz", "REPETITION": 1}}')
    assert status == 200
    assert [tensor.elements() for tensor in model.asked[0].inputs] == [[b"zz"]]
    assert model.asked[0].parameters == {"REPETITION": 1}


def test_a_parameter_that_comes_twice_has_its_first_value() -> None:
    model = Writer()
    body = b'{"text_input": "a", "REPETITION": 1, "REPETITION": 2, "id": "i", "id": "j"}'
    status, _, answer, _ = ask(model, "generate", body)
    assert (status, orjson.loads(answer)["id"]) == (200, "i")
    assert model.asked[0].parameters == {"REPETITION": 1}


@pytest.mark.parametrize("body", [b'{"a": 1, "parameters": {"a": 2}}', b'{"parameters": {"a": 1}, "a": 2}'])
def test_of_a_parameter_in_both_places_the_later_one_counts(body: bytes) -> None:
    """A Python model on Triton 2.51 is given both, in this order, and reads the last."""
    model = Writer()
    ask(model, "generate", body[:-1] + b', "text_input": "x", "REPETITION": 1}')
    assert model.asked[0].parameters == {"a": 2, "REPETITION": 1}


def test_the_first_mistake_in_the_document_is_reported() -> None:
    """As on Triton 2.51, whatever the order of the model's inputs."""
    both = {"text_input": 1}, {"foo": {}}
    for body, words in (({**both[0], **both[1]}, "non-string as string"), ({**both[1], **both[0]}, "'foo'")):
        assert words in orjson.loads(ask(Writer(), "generate", body)[2])["error"]
