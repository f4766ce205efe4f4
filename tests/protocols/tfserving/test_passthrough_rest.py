"""Predictions over REST that pass to an upstream of the dialect as text, and those that are written again."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest

from interlingua.protocols.wire import HttpReply, HttpRequest, parts_of
from interlingua.schemas import Datatype, Signature, TensorSpec
from tests.properties.passing import Bridge, Outcome

ONE = Signature((TensorSpec("a", Datatype.FP32, (-1, 2)),), (TensorSpec("x", Datatype.FP32, (-1, 2)),))
TWO = Signature(
    (TensorSpec("a", Datatype.FP32, (-1,)), TensorSpec("b", Datatype.INT32, (-1,))),
    (TensorSpec("x", Datatype.FP32, (-1,)), TensorSpec("y", Datatype.INT32, (-1,))),
)
TEXTS = Signature((TensorSpec("a", Datatype.BYTES, (-1,)),), (TensorSpec("x", Datatype.BYTES, (-1,)),))
WIRE = ("tfserving", "http")

ROWS = b'{"instances": [[0.10000000149, 2], [-0.0, NaN]]}'
PREDICTIONS = b'{ "predictions": [[0.1, 2.0], [1, Infinity]] }'
COLUMNS = b'{"inputs": {"a": [5, 1], "b": [1, 2]}, "signature_name": "serving_default"}'
OUTPUTS = b'{"outputs": {"x": [5, 1], "y": [1, 2]}}'


def ask(signature: Signature, body: bytes, reply: bytes, status: int = 200, **bridge: Any) -> Outcome:
    """The outcome of a bridge that passes messages; one that decodes them has the same, as far as both can."""
    made = Bridge(WIRE, signature, **bridge)
    asked = HttpRequest("POST", "/v1/models/model:predict", "", {}, body)
    answer = HttpReply(status, {"content-type": "application/json"}, reply)
    passed, decoded = (asyncio.run(made.ask(asked, answer, passing=each)) for each in (True, False))
    assert passed.answer.status == decoded.answer.status
    assert len(passed.seen) == len(decoded.seen)
    if passed.answer.status != 200:
        assert text(passed) == text(decoded)
    else:
        assert json.loads(text(passed), parse_constant=str) == json.loads(text(decoded), parse_constant=str)
    return passed


def text(outcome: Outcome) -> bytes:
    return b"".join(parts_of(outcome.answer))


def sent(outcome: Outcome) -> bytes:
    (call,) = outcome.seen
    return b"".join(map(bytes, call.parts))


@pytest.mark.parametrize(
    ("signature", "body", "reply"),
    [
        (ONE, ROWS, PREDICTIONS),
        (ONE, b'{"inputs": [[1, 2]]}', b'{"outputs": [[1.5, 2]]}'),
        (ONE, b'{"inputs": {"a": [[1, 2]]}}', b'{"outputs": [[1.5, 2]]}'),
        (TWO, COLUMNS, OUTPUTS),
    ],
    ids=["rows", "value", "named value", "columns"],
)
def test_text_passes_as_it_is(signature: Signature, body: bytes, reply: bytes) -> None:
    outcome = ask(signature, body, reply)
    assert outcome.passed
    assert (sent(outcome), text(outcome)) == (body, reply)


def test_the_model_and_its_version_are_those_of_the_upstream() -> None:
    outcome = ask(ONE, ROWS, PREDICTIONS, remote="far/away")
    (call,) = outcome.seen
    assert (call.method, call.path) == ("POST", "/v1/models/far%2Faway:predict")
    assert outcome.passed


@pytest.mark.parametrize(
    ("signature", "body", "reply"),
    [
        (ONE, b'{"instances": [[1, 2]], "instances": [[3, 4]]}', PREDICTIONS),
        (ONE, b'{"instances": [[1, 2]], "more": 1}', b'{"predictions": [[1, 2]]}'),
        (ONE, b'{"instances": [{"a": [1, 2]}]}', b'{"predictions": [[1, 2]]}'),
        (ONE, b'{"inputs": {"\\u0061": [[1, 2]]}}', b'{"outputs": [[1, 2]]}'),
        (ONE, b'\xef\xbb\xbf{"inputs": [[1, 2]]}', b'{"outputs": [[1, 2]]}'),
        (
            ONE,
            b'{"inputs": [[1, 2]], "signature_name": "tensorflow/serving/predict"}',
            b'{"outputs": [[1, 2]]}',
        ),
        (TWO, b'{"inputs": {"a": [5, 1], "b": [1.0, 2]}}', OUTPUTS),
        (TWO, b'{"inputs": {"a": [5, 1], "b": [1, 2e0]}}', OUTPUTS),
        (TEXTS, b'{"inputs": ["p"]}', b'{"outputs": ["q"]}'),
    ],
    ids=["twice", "member", "objects", "escape", "mark", "signature", "fraction", "exponent", "texts"],
)
def test_what_readers_may_understand_otherwise_is_written_again(
    signature: Signature, body: bytes, reply: bytes
) -> None:
    outcome = ask(signature, body, reply)
    assert outcome.answer.status == 200, text(outcome)
    assert not outcome.passed and sent(outcome) != body


def test_renamed_tensors_are_written_again() -> None:
    reply = b'{"outputs": {"far": [0.5, 1.0], "y": [1, 2]}}'
    outcome = ask(TWO, COLUMNS, reply, inputs={"a": "left"}, outputs={"x": "far"})
    assert not outcome.passed
    assert set(json.loads(sent(outcome))["inputs"]) == {"left", "b"}
    assert set(json.loads(text(outcome))["outputs"]) == {"x", "y"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"instances": [[1, 2, 3]]}', 400),
        (b'{"instances": [[1, 1e39]]}', 400),
        (b'{"instances": [["p", 1]]}', 400),
        (b'{"instances": [[1, 2]], "signature_name": "other"}', 400),
        (b'{"instances": [[1, 2]]', 400),
        (b"{}", 400),
    ],
    ids=["shape", "range", "kind", "signature", "cut short", "empty"],
)
def test_what_is_wrong_reaches_no_server(body: bytes, status: int) -> None:
    outcome = ask(ONE, body, PREDICTIONS)
    assert (outcome.answer.status, outcome.seen) == (status, [])


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (b'{"predictions": [{"x": [0.1, 2.0]}]}', 200),
        (b'{"outputs": [[0.1, 2.0]]}', 200),
        (b'{"predictions": [[0.1, 2.0]], "more": 1}', 200),
        (b'{"predictions": [[0.1, 2.0]], "predictions": []}', 200),
        (b'{"predictions": [["p", 2.0]]}', 502),
        (b'{"predictions": 1', 502),
        (b"{}", 502),
        (b'{"error": "no"}', 400),
        (b"not now", 503),
    ],
    ids=["named", "key", "member", "twice", "kind", "cut short", "empty", "refused", "unavailable"],
)
def test_answers_of_every_form(reply: bytes, status: int) -> None:
    outcome = ask(ONE, b'{"instances": [[1, 2]]}', reply, status if status in (400, 503) else 200)
    assert outcome.passed and outcome.answer.status == status, text(outcome)
    assert text(outcome) != reply


def test_integers_have_no_fractions() -> None:
    for reply in (b'{"outputs": {"x": [0, 1], "y": [1.0, 2]}}', b'{"outputs": {"x": [0, 1], "y": [1e0, 2]}}'):
        outcome = ask(TWO, COLUMNS, reply)
        assert json.loads(text(outcome))["outputs"]["y"] == [1, 2]
        assert b"1.0," not in text(outcome).partition(b'"y"')[2]


def test_a_compressed_body_is_decoded() -> None:
    made = Bridge(WIRE, ONE)
    asked = HttpRequest(
        "POST", "/v1/models/model:predict", "", {"content-encoding": "gzip"}, gzip.compress(ROWS)
    )
    outcome = asyncio.run(made.ask(asked, HttpReply(200, {}, PREDICTIONS), passing=True))
    assert outcome.answer.status == 200 and not outcome.passed
