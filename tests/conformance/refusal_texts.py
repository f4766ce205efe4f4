"""Requests that Triton refuses in words that its users match on, with these words of release 2.51.

The same table is for the daemon, whose words begin with Triton's and may go on, and for a real Triton.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import requests

from interlingua.schemas.oip import MESSAGES
from tests.conformance.oip_client import Server

_ANSWER_SECS = 30
_REQUEST_ID = re.compile(r"\[request id: [^]]*\] ")
_REQUEST: Any = MESSAGES["inference.ModelInferRequest"]

_MODEL = """
import json
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.first = config["input"][0]["name"]
        (output,) = config["output"]
        self.kind = pb_utils.triton_string_to_numpy(output["data_type"])

    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(each, self.first).as_numpy() for each in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", each.astype(self.kind))]) for each in given]
"""


def _config(inputs: Mapping[str, str], output: str = "TYPE_FP32 dims: 1", more: str = "") -> str:
    sides = [f'input {{ name: "{name}" data_type: {kind} }}' for name, kind in inputs.items()]
    return "\n".join(['backend: "python"', *sides, f'output {{ name: "OUT" data_type: {output} }}', more])


_REAL, _TEXT = "TYPE_FP32 dims: 1", "TYPE_STRING dims: 1"
_THREE = dict.fromkeys("ABC", _REAL)
_BATCHES = "max_batch_size: 4"
_MODELS = {
    "three": _config(_THREE),
    "four": _config({**_THREE, "D": f"{_REAL} optional: true"}),
    "words": _config({"IN": "TYPE_STRING dims: -1"}, "TYPE_STRING dims: -1"),
    "two_words": _config({"IN": "TYPE_STRING dims: 2"}, "TYPE_STRING dims: 2"),
    "word_lists": _config({"IN": "TYPE_STRING dims: -1"}, "TYPE_STRING dims: -1", _BATCHES),
    "grid": _config({"IN": "TYPE_FP32 dims: [-1, -1]"}, "TYPE_FP32 dims: [-1, -1]"),
    "grids": _config({"IN": "TYPE_FP32 dims: [-1, -1]"}, "TYPE_FP32 dims: [-1, -1]", _BATCHES),
    "writer": _config(
        {
            "PROMPT": _TEXT,
            "LOUD": "TYPE_BOOL dims: 1",
            "COUNT": "TYPE_INT32 dims: 1 optional: true",
            "SIZES": "TYPE_UINT8 dims: -1 optional: true",
            "SHARE": "TYPE_FP64 dims: 2 optional: true",
        },
        _TEXT,
    ),
    "truths": _config({"IN": "TYPE_FP32 dims: 4"}, "TYPE_BOOL dims: 4"),
    "halves": _config({"IN": "TYPE_FP32 dims: 4"}, "TYPE_FP16 dims: 4"),
}


def write_models(repository: Path) -> list[str]:
    """Write the models of the table. Returns their names."""
    for name, config in _MODELS.items():
        folder = repository / name / "1"
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(_MODEL)
        (folder.parent / "config.pbtxt").write_text(config)
    return list(_MODELS)


@dataclass(frozen=True)
class Refused:
    """A request over HTTP to ``path``, or over gRPC with a message, and the beginning of its refusal."""

    text: str
    path: str = ""
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    message: Any = None
    triton_status: int = 400
    """Triton's status over HTTP where the daemon has 400: 500 for some mistakes in JSON, 200 for some that it
    ignores."""

    def send(self, server: Server) -> tuple[int | str, str]:
        """Status and text of the answer, without the id of the request."""
        if self.message is not None:
            return self._call(server)
        body = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        url = f"http://{server.http}/v2/models/{self.path}"
        answer = requests.post(url, body, headers=self.headers, timeout=_ANSWER_SECS)
        return answer.status_code, _REQUEST_ID.sub("", answer.json().get("error", ""))

    def _call(self, server: Server) -> tuple[str, str]:
        with grpc.insecure_channel(server.grpc) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            try:
                call(self.message.SerializeToString(), timeout=_ANSWER_SECS)
            except grpc.RpcError as error:
                return error.code().name, _REQUEST_ID.sub("", error.details())
        return "OK", ""


# --- number and names of inputs

_GOT = (
    "expected {} but got {} inputs for model '{}'. Got input(s) {}, but missing required input(s) {}. "
    "Please provide all required input(s)."
)
_BETWEEN = "number of inputs between 3 and 4"
_NUMBERS = {
    "none of three": ("three", "", _GOT.format("3 inputs", 0, "three", "[]", "['A','B','C']")),
    "one of three": ("three", "B", _GOT.format("3 inputs", 1, "three", "['B']", "['A','C']")),
    "four for three": ("three", "ABCQ", "expected 3 inputs but got 4 inputs for model 'three'. Got input(s) ["),
    "none of three or four": ("four", "", _GOT.format(_BETWEEN, 0, "four", "[]", "['A','B','C']")),
    "one of three or four": ("four", "A", _GOT.format(_BETWEEN, 1, "four", "['A']", "['B','C']")),
    "the optional one alone": ("four", "D", _GOT.format(_BETWEEN, 1, "four", "['D']", "['A','B','C']")),
    "two of three or four": ("four", "AB", f"expected {_BETWEEN} but got 2 inputs for model 'four'. Got input(s) ["),
    "five for three or four": ("four", "ABCDQ", f"expected {_BETWEEN} but got 5 inputs for model 'four'. Got input(s) ["),
    "an unknown one": ("four", "ABCQ", "unexpected inference input 'Q' for model 'four'"),
    "one twice": ("four", "ABCC", "input 'C' already exists in request"),
    "two twice": ("four", "ABBA", "input 'B' already exists in request"),
}  # fmt: skip


def _inputs(names: str) -> list[dict[str, Any]]:
    return [{"name": name, "datatype": "FP32", "shape": [1], "data": [1]} for name in names]


def _message(model: str, names: str = "ABC", count: int = 1) -> Any:
    """A request with ``count`` numbers for each of the inputs ``names``."""
    message = _REQUEST(model_name=model)
    for name in names:
        given = message.inputs.add(name=name, datatype="FP32", shape=[count])
        given.contents.fp32_contents.extend([1.0] * count)
    return message


# --- a body without JSON

_RAW = {"Inference-Header-Content-Length": "0"}
_ONE_WORD = "For BYTE datatype raw input 'IN', the model must have input shape [1]"
_ONE_FREE = "The shape of the raw input 'IN' can not be deduced because there are more than one variable-sized dimension"
_RAWS = {
    "words": _ONE_WORD,
    "two_words": _ONE_WORD,
    "word_lists": _ONE_WORD,
    "grid": _ONE_FREE,
    "grids": _ONE_FREE,
    "three": "Raw request must only have 1 input (found 1) to be deduced but got 3 inputs in 'three' model configuration",
}  # fmt: skip

# --- parameters

_RESERVED = "parameter keys starting with 'triton_' are reserved for Triton usage"
_RESERVED_HERE = f"{_RESERVED} and should not be specified."
_RESERVED_BUT_ONE = (
    f"{_RESERVED}. Only the following keys starting with 'triton_' are allowed: "
    "triton_enable_empty_final_response"
)
_KIND = "parameter '{}' has invalid type. It should be either 'int', 'bool', or 'string'."
_PARAMETERS: dict[str, tuple[dict[str, Any], str]] = {
    "a reserved parameter": ({"triton_x": 1}, _RESERVED_HERE),
    "a flag of responses": ({"triton_final_response": True}, _RESERVED_HERE),
    "a flag of streams": ({"triton_enable_empty_final_response": True}, _RESERVED_HERE),
    "an object": ({"x": {"y": 1}}, _KIND.format("x")),
    "a list": ({"x": [1]}, _KIND.format("x")),
    "null": ({"x": None}, _KIND.format("x")),
    "a list, then a reserved parameter": ({"x": [1], "triton_y": 1}, _KIND.format("x")),
    "a reserved parameter, then a list": ({"triton_y": 1, "x": [1]}, _RESERVED_HERE),
}
_OTHER_FIELD = "invalid value type for '{}' parameter, expected {}."
_ANY_FIELD = "int64_param, bool_param, or string_param"
_FIELDS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a reserved parameter": ("triton_x", {"int64_param": 1}, _RESERVED_BUT_ONE),
    "a flag of responses": ("triton_final_response", {"bool_param": True}, _RESERVED_BUT_ONE),
    "a flag of streams": (
        "triton_enable_empty_final_response",
        {"int64_param": 1},
        _OTHER_FIELD.format("triton_enable_empty_final_response", "bool_param"),
    ),
    "no value": ("x", {}, _OTHER_FIELD.format("x", _ANY_FIELD)),
    "unsigned": ("x", {"uint64_param": 1}, _OTHER_FIELD.format("x", _ANY_FIELD)),
    "sequence_id": (
        "sequence_id",
        {"bool_param": True},
        _OTHER_FIELD.format("sequence_id", "int64_param or string_param"),
    ),
    "sequence_start": ("sequence_start", {"int64_param": 1}, _OTHER_FIELD.format("sequence_start", "bool_param")),
    "sequence_end": ("sequence_end", {"string_param": "yes"}, _OTHER_FIELD.format("sequence_end", "bool_param")),
    "priority": ("priority", {"string_param": "1"}, _OTHER_FIELD.format("priority", "int64_param or uint64_param")),
    "timeout": ("timeout", {"uint64_param": 1}, _OTHER_FIELD.format("timeout", "int64_param")),
    "timeout a text": ("timeout", {"string_param": "1"}, _OTHER_FIELD.format("timeout", "int64_param")),
}  # fmt: skip


def _with_parameter(key: str, value: Mapping[str, Any]) -> Any:
    message = _message("three")
    message.parameters[key].SetInParent()
    for choice, content in value.items():
        setattr(message.parameters[key], choice, content)
    return message


# --- counts of classes

_UNRANKED = "class result not available for output due to unsupported type '{}'"
_COUNTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "classes of booleans": ("truths", {"int64_param": 1}, _UNRANKED.format("BOOL")),
    "classes of halves": ("halves", {"int64_param": 2}, _UNRANKED.format("FP16")),
    "no class": ("truths", {"int64_param": 0}, "invalid value for 'classification' parameter, expected >= 0"),
    "-1 classes": ("truths", {"int64_param": -1}, "invalid value for 'classification' parameter, expected >= 0"),
    "a text of classes": (
        "truths",
        {"string_param": "1"},
        "invalid value type for 'classification' parameter, expected int64_param",
    ),
    "an unsigned count": (
        "truths",
        {"uint64_param": 1},
        "invalid value type for 'classification' parameter, expected int64_param",
    ),
}  # fmt: skip


def _with_classes(model: str, count: Mapping[str, Any]) -> Any:
    message = _message(model, ("IN",), 4)
    parameters = message.outputs.add(name="OUT").parameters
    for choice, content in count.items():
        setattr(parameters["classification"], choice, content)
    return message


# --- generate and generate_stream

_NO_TEXT = "Unable to parse JSON bytes array: attempt to access JSON non-string as string"
_NO_TRUTH = "Unable to parse 'data': attempt to access JSON non-boolean as boolean"
_NO_OBJECT = "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as object"
_TWICE = "input '{}' already exists in request"
_NESTED = "Converting keyword: 'parameters': "
_SHAPE = "The schema can not convert input '{}' to tensor with proper shape"
_GOOD = {"PROMPT": "x", "LOUD": True}
_OF_FIVE = "expected number of inputs between 2 and 5 but got {} inputs for model 'writer'."
_FLAT: dict[str, tuple[Any, str]] = {
    "nothing known": ({"x": 1}, _OF_FIVE.format(0)),
    "one of two inputs": ({"LOUD": True, "x": "y"}, _OF_FIVE.format(1)),
    "a parameter that is an object": ({**_GOOD, "x": {"y": 1}}, _KIND.format("x")),
    "a parameter that is a list": ({**_GOOD, "x": [1]}, _KIND.format("x")),
    "a parameter that is null": ({**_GOOD, "x": None}, _KIND.format("x")),
    "a nested parameter that is an object": ({**_GOOD, "parameters": {"x": {}}}, _NESTED + _KIND.format("x")),
    "an object, then a number for a text": ({"x": {}, "PROMPT": 1, "LOUD": True}, _KIND.format("x")),
    "too many texts, then a number for a truth": ({"PROMPT": ["x", "y"], "LOUD": 1}, _SHAPE.format("PROMPT")),
    "one number of two": ({**_GOOD, "SHARE": 1}, _SHAPE.format("SHARE")),
    "an input twice": (b'{"PROMPT":"x","LOUD":true,"PROMPT":"y"}', _TWICE.format("PROMPT")),
    "both twice": (b'{"PROMPT":"x","LOUD":true,"PROMPT":"y","LOUD":true}', _TWICE.format("PROMPT")),
    "both twice, the second first": (b'{"PROMPT":"x","LOUD":true,"LOUD":true,"PROMPT":"y"}', _TWICE.format("LOUD")),
    "twice, with a number": (b'{"PROMPT":"x","LOUD":true,"PROMPT":1}', _TWICE.format("PROMPT")),
    "twice, then an object": (b'{"PROMPT":"x","LOUD":true,"PROMPT":"y","x":{}}', _TWICE.format("PROMPT")),
    "an object, then twice": (b'{"PROMPT":"x","x":{},"LOUD":true,"PROMPT":"y"}', _KIND.format("x")),
    "among the parameters too": (b'{"PROMPT":"x","parameters":{"PROMPT":"y"},"LOUD":1}', _NESTED + _TWICE.format("PROMPT")),
    "among the parameters before": (b'{"parameters":{"PROMPT":"y"},"PROMPT":"x","LOUD":true}', _TWICE.format("PROMPT")),
    "twice among the parameters": (b'{"LOUD":true,"parameters":{"PROMPT":"x","PROMPT":"y"}}', _NESTED + _TWICE.format("PROMPT")),
    "the parameters twice": (b'{"parameters":{"PROMPT":"x"},"parameters":{"LOUD":true}}', _NESTED + _TWICE.format("PROMPT")),
}  # fmt: skip
_WITH_500: dict[str, tuple[Any, str]] = {
    "a number for a text": ({"PROMPT": 1, "LOUD": True}, _NO_TEXT),
    "null for a text": ({"PROMPT": None, "LOUD": True}, _NO_TEXT),
    "an object for a text": ({"PROMPT": {"user": "x"}, "LOUD": True}, _NO_TEXT),
    "a number among texts": ({"PROMPT": [1], "LOUD": True}, _NO_TEXT),
    "a text for a truth": ({"PROMPT": "x", "LOUD": "no"}, _NO_TRUTH),
    "both wrong": ({"PROMPT": True, "LOUD": 1}, _NO_TEXT),
    "both wrong, the second first": ({"LOUD": 1, "PROMPT": True}, _NO_TRUTH),
    "a number for a text, then an object": ({"PROMPT": 1, "x": {}, "LOUD": True}, _NO_TEXT),
    "a number for a text, then twice": (b'{"PROMPT":1,"LOUD":true,"LOUD":true}', _NO_TEXT),
    "a number, then the text": (b'{"PROMPT":1,"LOUD":true,"PROMPT":"x"}', _NO_TEXT),
    "a nested number for a text": ({"LOUD": True, "parameters": {"PROMPT": 1}}, _NESTED + _NO_TEXT),
    "a text for an integer": ({**_GOOD, "COUNT": "1"}, "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer"),
    "a text among unsigned ones": ({**_GOOD, "SIZES": [1, "2"]}, "Unable to parse 'data': attempt to access JSON non-unsigned-integer as unsigned-integer"),
    "texts for numbers": ({**_GOOD, "SHARE": ["1", "2"]}, "Unable to parse 'data': attempt to access JSON non-number as double"),
    "parameters a number": ({**_GOOD, "parameters": 1}, _NO_OBJECT),
    "parameters a list": ({**_GOOD, "parameters": []}, _NO_OBJECT),
    "parameters a number, then one for a text": ({"parameters": 1, "PROMPT": 1, "LOUD": True}, _NO_OBJECT),
    "a number for a text, then parameters": ({"PROMPT": 1, "LOUD": True, "parameters": 1}, _NO_TEXT),
}  # fmt: skip

_ELEMENTS: dict[str, tuple[str, str, list[Any], str]] = {
    "a number for a text": ("words", "BYTES", [1], _NO_TEXT),
    "null for a text": ("words", "BYTES", [None], _NO_TEXT),
    "a text for a number": ("truths", "FP32", ["1"], "Unable to parse 'data': attempt to access JSON non-number as double"),
    "a number for a truth": ("truths", "BOOL", [1], _NO_TRUTH),
}  # fmt: skip


def _table() -> dict[str, Refused]:
    found: dict[str, Refused] = {}
    for name, (model, names, text) in _NUMBERS.items():
        found[f"http: {name}"] = Refused(text, f"{model}/infer", {"inputs": _inputs(names)})
        found[f"grpc: {name}"] = Refused(text, message=_message(model, names))
    for model, text in _RAWS.items():
        found[f"http: raw {model}"] = Refused(text, f"{model}/infer", b"12345678", _RAW)
    for name, (parameters, text) in _PARAMETERS.items():
        body = {"inputs": _inputs("ABC"), "parameters": parameters}
        found[f"http: {name}"] = Refused(text, "three/infer", body)
    for name, (key, value, text) in _FIELDS.items():
        found[f"grpc: {name}"] = Refused(text, message=_with_parameter(key, value))
    for name, (model, count, text) in _COUNTS.items():
        found[f"grpc: {name}"] = Refused(text, message=_with_classes(model, count))
    for model, kind in (("truths", "BOOL"), ("halves", "FP16")):
        body = {
            "inputs": [{"name": "IN", "datatype": "FP32", "shape": [4], "data": [1, 2, 3, 4]}],
            "outputs": [{"name": "OUT", "parameters": {"classification": 1}}],
        }
        found[f"http: classes of {model}"] = Refused(_UNRANKED.format(kind), f"{model}/infer", body)
    for name, (model, datatype, data, text) in _ELEMENTS.items():
        body = {"inputs": [{"name": "IN", "datatype": datatype, "shape": [1], "data": data}]}
        found[f"http: {name}"] = Refused(text, f"{model}/infer", body, triton_status=500)
    for method in ("generate", "generate_stream"):
        for status, flat in ((400, _FLAT), (500, _WITH_500)):
            for name, (body, text) in flat.items():
                path = f"writer/{method}"
                found[f"{method}: {name}"] = Refused(text, path, body, triton_status=status)
        found[f"{method}: a content coding"] = Refused(
            "Unsupported content-encoding, only 'identity' is supported.",
            f"writer/{method}",
            b"{}",
            {"Content-Encoding": "gzip"},
        )
    ignored: dict[str, tuple[str, Any, str]] = {
        "not the required ones": ("four/infer", {"inputs": _inputs("ABD")}, f"expected {_BETWEEN} but got 3 inputs"),
        "a reserved parameter of generate": ("writer/generate", {**_GOOD, "triton_x": 1}, _RESERVED_BUT_ONE),
        "a text as priority of generate": ("writer/generate", {**_GOOD, "priority": "high"}, "parameter 'priority' must"),
    }  # fmt: skip
    for name, (path, body, text) in ignored.items():
        found[f"http: {name}"] = Refused(text, path, body, triton_status=200)
    return found


TABLE = _table()
