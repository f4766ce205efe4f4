"""Predictions that pass to an upstream of the dialect undecoded, and those that do not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.schemas import Datatype, Signature, TensorSpec
from interlingua.schemas.tfserving import MESSAGES
from tests.properties.passing import Bridge, Outcome

REQUEST: Any = MESSAGES["tensorflow.serving.PredictRequest"]
RESPONSE: Any = MESSAGES["tensorflow.serving.PredictResponse"]
METHOD = "/tensorflow.serving.PredictionService/Predict"

FLOATS = np.array([1.5, np.nan, -0.0], np.float32).tobytes()
SIGNATURE = Signature(
    (TensorSpec("a", Datatype.FP32, (-1,)), TensorSpec("b", Datatype.INT32, (-1,))),
    (TensorSpec("x", Datatype.FP32, (-1,)), TensorSpec("y", Datatype.FP32, (-1,))),
)
BRIDGE = Bridge(("tfserving", "grpc"), SIGNATURE, remote="model")


def tensor(dtype: int, **values: Any) -> dict[str, Any]:
    return {"dtype": dtype, "tensor_shape": {"dim": [{"size": 3}]}, **values}


A = tensor(1, tensor_content=FLOATS)
B = tensor(3, tensor_content=bytes(12))


def request(inputs: Mapping[str, Any] | None = None, **fields: Any) -> Any:
    spec = {"name": "model", **fields.pop("model_spec", {})}
    return REQUEST(model_spec=spec, inputs=inputs or {"a": A, "b": B}, **fields)


def response(x: Any = None, y: Any = None, **spec: Any) -> GrpcAnswer:
    outputs = {"x": x or tensor(1, float_val=[1, 2, 3]), "y": y or tensor(1, float_val=[4, 5, 6])}
    spec = {"name": "model", "version": {"value": 7}, "signature_name": "serving_default", **spec}
    pieces = [RESPONSE(model_spec=spec)]
    pieces += [RESPONSE(outputs={name: outputs[name]}) for name in outputs]
    return GrpcAnswer(b"".join(piece.SerializeToString() for piece in pieces))


def ask(message: Any, reply: GrpcAnswer, bridge: Bridge = BRIDGE) -> tuple[Outcome, Outcome]:
    """The outcomes of a bridge that passes messages, and of one that decodes them."""
    sent = GrpcRequest(METHOD, message.SerializeToString())
    passed, decoded = (asyncio.run(bridge.ask(sent, reply, passing=each)) for each in (True, False))
    assert passed.answer.code == decoded.answer.code, passed.answer.details
    assert passed.answer.details == decoded.answer.details
    if not passed.answer.code:
        assert RESPONSE.FromString(bytes(passed.answer.whole)) == RESPONSE.FromString(
            bytes(decoded.answer.whole)
        )
    return passed, decoded


def test_a_message_and_its_answer_pass_as_they_are() -> None:
    message, reply = request(), response()
    for _ in range(3):  # the first, and repeated ones
        passed, decoded = ask(message, reply)
        assert passed.passed and not decoded.passed
        assert [bytes(each.whole) for each in passed.seen] == [message.SerializeToString()]
        assert passed.answer.message == reply.message


def test_repeated_messages_have_their_own_contents() -> None:
    for value in range(4):
        a = tensor(1, float_val=[value, 2, 3])
        reply = response(tensor(1, float_val=[value, value, value]))
        passed, _ = ask(request({"a": a, "b": B}), reply)
        assert REQUEST.FromString(bytes(passed.seen[0].whole)).inputs["a"].float_val[0] == value
        assert RESPONSE.FromString(passed.answer.message).outputs["x"].float_val[0] == value


@pytest.mark.parametrize(
    "spec",
    [{"version": {"value": 0}}, {"signature_name": "tensorflow/serving/predict"}],
    ids=["version 0", "signature"],
)
def test_what_upstreams_may_not_know_is_dropped(spec: dict[str, Any]) -> None:
    for _ in range(2):
        passed, decoded = ask(request(model_spec=spec), response())
        theirs = REQUEST.FromString(bytes(passed.seen[0].whole))
        assert theirs == REQUEST.FromString(bytes(decoded.seen[0].whole))
        assert not theirs.model_spec.HasField("version") and not theirs.model_spec.signature_name


@pytest.mark.parametrize("spec", [{"version": {"value": 7}}, {"version_label": "stable"}])
def test_versions_and_labels_pass(spec: dict[str, Any]) -> None:
    message = request(model_spec=spec)
    passed, _ = ask(message, response())
    assert passed.passed
    assert bytes(passed.seen[0].whole) == message.SerializeToString()


def test_names_are_rewritten() -> None:
    bridge = replace(BRIDGE, inputs={"a": "left"}, outputs={"x": "top"}, remote="far")
    reply = response()
    renamed = RESPONSE.FromString(reply.message)
    renamed.outputs["top"].CopyFrom(renamed.outputs["x"])
    del renamed.outputs["x"]
    renamed.model_spec.name = "far"
    passed, decoded = ask(request(output_filter=["x"]), GrpcAnswer(renamed.SerializeToString()), bridge)
    assert passed.passed
    theirs = REQUEST.FromString(bytes(passed.seen[0].whole))
    assert theirs == REQUEST.FromString(bytes(decoded.seen[0].whole))
    assert (theirs.model_spec.name, set(theirs.inputs), list(theirs.output_filter)) == (
        "far",
        {"left", "b"},
        ["top"],
    )


@pytest.mark.parametrize(
    "inputs",
    [
        {"a": A, "b": tensor(3, int_val=[1, 2, 3])},
        {"a": tensor(1, float_val=[1]), "b": B},
        {"a": tensor(1), "b": B},
    ],
    ids=["varints", "last value repeats", "no values"],
)
def test_other_forms_are_decoded(inputs: dict[str, Any]) -> None:
    passed, _ = ask(request(inputs), response())
    assert not passed.passed and len(passed.seen) == 1


@pytest.mark.parametrize(
    "message",
    [
        request({"a": A}),
        request({"a": A, "b": B, "c": B}),
        request({"a": tensor(2, tensor_content=bytes(24)), "b": B}),
        request({"a": tensor(1, tensor_content=bytes(8)), "b": B}),
        request(
            {"a": tensor(1, tensor_content=FLOATS, tensor_shape={"dim": [{"size": 1}, {"size": 3}]}), "b": B}
        ),
        request(output_filter=["z"]),
        request(output_filter=["x", "x"]),
        request(model_spec={"signature_name": "other"}),
        request({"a": tensor(1, tensor_shape={"dim": [{"size": -1}]}, tensor_content=FLOATS), "b": B}),
    ],
    ids=["missing", "unknown", "datatype", "size", "shape", "output", "twice", "signature", "negative"],
)
def test_what_does_not_fit_is_refused_in_the_same_words(message: Any) -> None:
    for _ in range(2):
        passed, decoded = ask(message, response())
        assert passed.answer.code == 3 and passed.answer.details
        assert not passed.seen and not decoded.seen


@pytest.mark.parametrize(
    "reply",
    [
        response(tensor(1, tensor_content=FLOATS)),
        response(tensor(1, float_val=[1])),
        response(tensor(1, float_val=[1, 2, 3, 4])),
        response(name="other"),
        response(signature_name=""),
        GrpcAnswer(b"\xff"),
        GrpcAnswer(code=3, details="no"),
        GrpcAnswer(code=14, details="not now"),
    ],
    ids=["content", "repeats", "too many", "name", "signature", "junk", "refused", "unavailable"],
)
def test_answers_of_every_form(reply: GrpcAnswer) -> None:
    for _ in range(2):
        passed, _ = ask(request(), reply)
        assert passed.passed
