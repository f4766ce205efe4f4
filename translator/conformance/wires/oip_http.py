"""The Open Inference Protocol over HTTP: valid responses and refusals, and the rules of this wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson
from hypothesis import strategies as st

from interlingua.protocols.oip.client import HTTP_CALLS, HTTP_JSON_CALLS
from interlingua.protocols.wire import HttpCall, HttpReply
from interlingua.schemas import Datatype, InferRequest, Operation, element_count
from interlingua.schemas.datatypes import DATATYPES
from interlingua.translator.conformance.check import Draw, Group
from interlingua.translator.conformance.errors import ViolationError, expect, expect_names, skip_if
from interlingua.translator.conformance.exchange import WireExchange
from interlingua.translator.conformance.replies import http_reply, http_request, json_object, media_type
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.wire import Mistake, Wire
from interlingua.translator.conformance.wires.oip_common import ANY_IDS, EXTENSIONS, PLAIN_IDS, with_classes
from interlingua.translator.conformance.wires.oip_memory import HTTP_MEMORY

_RULES = Group("oip-http", infers=True)

_LENGTH = "inference-header-content-length"
_BINARY = "binary_tensor_data"

_JSON_TYPES = {"b": (bool,), "i": (int,), "u": (int,), "O": (str,)}
"""JSON types of elements, by NumPy's kind of the datatype; other elements are numbers."""

Document = dict[str, Any]


def _succeeded(exchange: WireExchange) -> bool:
    return isinstance(exchange.reply, HttpReply) and 200 <= exchange.reply.status < 300


def _check_error(exchange: WireExchange, mistake: Mistake) -> None:
    """Status 4xx, 404 for an unknown model or version, and a JSON object with the text as ``error``."""
    reply = http_reply(exchange)
    text = json_object(exchange, bytes(reply.body), "an error").get("error")
    expect(
        text and isinstance(text, str), f"an error (status {reply.status}) without the text 'error'", exchange
    )
    if mistake in (Mistake.UNKNOWN_MODEL, Mistake.UNKNOWN_VERSION):
        expect(reply.status == 404, f"status {reply.status} for {mistake.value}, not 404", exchange)
    elif mistake is not Mistake.ANY:
        what = f"status {reply.status} for the caller's mistake, not 4xx"
        expect(400 <= reply.status < 500, what, exchange)


def _check_answer(request: InferRequest, exchange: WireExchange) -> None:
    """Status 200, and a JSON part of the length in the header. It lists each output once, with its data or
    its size in the binary part, which has exactly these bytes."""
    reply = http_reply(exchange)
    expect(reply.status == 200, f"status {reply.status} of an answer, not 200", exchange)
    body = bytes(reply.body)
    length = reply.headers.get(_LENGTH)
    end = len(body)
    if length is not None:
        expect(length.isdigit() and int(length) <= end, f"{_LENGTH} is {length} of {end} bytes", exchange)
        end = int(length)
    document = json_object(exchange, body[:end], "an answer")
    expect(isinstance(document.get("model_name"), str), "the answer has no 'model_name'", exchange)
    outputs = document.get("outputs")
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise ViolationError("'outputs' is not an array of objects", exchange)
    expect_names("output", [output.get("name") for output in outputs], exchange)
    tail = sum(_check_output(exchange, output) for output in outputs)
    expect(tail == len(body) - end, f"{len(body) - end} binary bytes, the outputs list {tail}", exchange)


def _check_output(exchange: WireExchange, output: Document) -> int:
    """The size of ``output`` in the binary part."""
    name, kind, shape = (output.get(member) for member in ("name", "datatype", "shape"))
    expect(isinstance(name, str), f"an output has the name {name!a}", exchange)
    datatype = DATATYPES.get(kind) if isinstance(kind, str) else None
    if datatype is None:
        raise ViolationError(f"output '{name}' has the unknown datatype {kind!a}", exchange)
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ViolationError(f"output '{name}' has the shape {shape!a}", exchange)
    count = element_count(shape)
    parameters = output.get("parameters") or {}
    size = parameters.get("binary_data_size")
    both = ("data" in output) == (size is not None)
    expect(not both, f"output '{name}' has data twice or not at all", exchange)
    if size is None:
        data = output["data"]
        expect(isinstance(data, list), f"the data of output '{name}' are not an array", exchange)
        leaves = _flat(data)
        expect(len(leaves) == count, f"output '{name}' of shape {shape} has {len(leaves)} elements", exchange)
        kinds = _JSON_TYPES.get(datatype.dtype.kind, (int, float))
        strange = [leaf for leaf in leaves if type(leaf) not in kinds]
        expect(not strange, f"output '{name}' of {kind} has the element {strange[:1]}", exchange)
        return 0
    if datatype is not Datatype.BYTES:
        right = count * datatype.itemsize
        expect(size == right, f"output '{name}': {size} bytes for {count} {datatype.value}", exchange)
    return int(size)


def _list_models(server: ServerUnderTest) -> tuple[str, ...]:
    """The ready models in the repository index, or in the list that some servers have."""
    exchange = server.send(HttpCall("POST", "/v2/repository/index", parts=[b"{}"]))
    if _succeeded(exchange):
        entries = orjson.loads(bytes(http_reply(exchange).body))
        return tuple(dict.fromkeys(entry["name"] for entry in entries if entry.get("state") == "READY"))
    exchange = server.send(HttpCall("GET", "/v2/models"))
    if _succeeded(exchange):
        return tuple(json_object(exchange, bytes(http_reply(exchange).body)).get("models", ()))
    return ()


# --- rules of this wire


@_RULES("Data may be nested as the shape, or flat.")
def nested_data(server: ServerUnderTest, draw: Draw) -> None:
    flat, sent = _as_json(server, draw(st.integers(0, 50)))
    nested = orjson.loads(orjson.dumps(flat))
    for tensor in nested["inputs"]:
        tensor["data"] = _nest(tensor["data"], tensor["shape"])
    _same_outputs(server, sent, flat, nested, "nested data")


@_RULES("Unknown members are ignored.")
def unknown_members(server: ServerUnderTest, draw: Draw) -> None:
    document, sent = _as_json(server, 1)
    name = draw(st.text("abcdefgh_", min_size=1, max_size=8).map("x_{}_y".format))
    value: Any = draw(st.sampled_from((1, "text", None, [1, 2], {"a": {}})))
    place = draw(st.sampled_from(("request", "input")))
    more = orjson.loads(orjson.dumps(document))
    (more if place == "request" else more["inputs"][0])[name] = value
    _same_outputs(server, sent, document, more, f"an unknown member of the {place}")


@_RULES("An empty list of outputs requests all of them.", once=True)
def empty_outputs(server: ServerUnderTest, draw: Draw) -> None:
    document, sent = _as_json(server, 1)
    _same_outputs(server, sent, document, {**document, "outputs": []}, "an empty list of outputs")


@_RULES("An integer beyond its datatype is refused, not wrapped.")
def integer_too_large(server: ServerUnderTest, draw: Draw) -> None:
    document, sent = _as_json(server, 1)
    places = [
        place
        for place, tensor in enumerate(document["inputs"])
        if DATATYPES[tensor["datatype"]].dtype.kind in "iu" and tensor["data"]
    ]
    skip_if(not places, "no input has integers")
    tensor = document["inputs"][draw(st.sampled_from(places))]
    kind = DATATYPES[tensor["datatype"]].dtype
    largest = 2 ** (kind.itemsize * 8 - (kind.kind == "i")) - 1
    number = largest + draw(st.integers(1, 300))
    skip_if(kind.itemsize == 8, "JSON parsers read no integers beyond 64 bits")
    tensor["data"][draw(st.integers(0, len(tensor["data"]) - 1))] = number
    _refused(server, sent, document, f"{number} as {tensor['datatype']}")


@_RULES("A member of another JSON type is refused.")
def wrong_member(server: ServerUnderTest, draw: Draw) -> None:
    document, sent = _as_json(server, 1)
    tensor = document["inputs"][0]
    broken: Callable[[], Any] = draw(
        st.sampled_from(
            (
                lambda: document.update(id=7),
                lambda: document.update(inputs={}),
                lambda: document.pop("inputs"),
                lambda: document.update(outputs=3),
                lambda: tensor.update(name=5),
                lambda: tensor.pop("shape"),
                lambda: tensor.update(shape="16"),
                lambda: tensor.pop("datatype"),
                lambda: tensor.update(datatype="FLOAT"),
                lambda: tensor.update(data={}),
                lambda: tensor.pop("data"),
            )
        )
    )
    broken()
    _refused(server, sent, document, "a member that is missing or of another JSON type")


@_RULES("A body that is not JSON is refused.")
def not_json(server: ServerUnderTest, draw: Draw) -> None:
    document, sent = _as_json(server, 1)
    text = orjson.dumps(document)
    broken = draw(
        st.sampled_from(
            (b"", b"[]", b"null", text[:-1], text + b"}", b"{}" + text, text.replace(b":", b"=", 1))
        )
    )
    _refused(server, sent, broken, "a body that is not one JSON object")


@_RULES("A wrong length of the JSON part is refused.")
def wrong_header_length(server: ServerUnderTest, draw: Draw) -> None:
    skip_if("binary" not in server.forms, f"the server does not list the extension {_BINARY}")
    sent = http_request(server.encoded(server.sample(), "binary"))
    name, length = next((name, text) for name, text in sent.headers.items() if name.lower() == _LENGTH)
    total = sum(map(len, sent.parts))
    wrong = draw(
        st.one_of(
            st.integers(1, int(length) - 1).map(str),
            st.integers(total + 1, 2**31 - 1).map(str),
            st.sampled_from(("-1", "x")),
        )
    )
    exchange = server.send(replace(sent, headers={**sent.headers, name: wrong}))
    server.refuses(exchange, Mistake.MALFORMED, f"a JSON part of {wrong} bytes for {length}")


@_RULES("Each output has the requested form: binary or JSON.")
def output_form(server: ServerUnderTest, draw: Draw) -> None:
    skip_if("binary" not in server.forms, f"the server does not list the extension {_BINARY}")
    document, sent = _as_json(server, 1)
    requested = {spec.name: draw(st.booleans()) for spec in server.known.outputs}
    document["outputs"] = [
        {"name": name, "parameters": {"binary_data": binary}} for name, binary in requested.items()
    ]
    outputs = _outputs(server, sent, document)
    for name, binary in requested.items():
        expect(name in outputs, f"output '{name}' is missing", server.last)
        have = "data" not in outputs[name]
        expect(have == binary, f"output '{name}' is {'binary' if have else 'in JSON'}", server.last)


@_RULES("An answer has binary data only on request.", once=True)
def json_by_default(server: ServerUnderTest, draw: Draw) -> None:
    document, sent = _as_json(server, 1)
    _outputs(server, sent, document)
    reply = http_reply(server.last)
    expect(_LENGTH not in reply.headers, "binary data that the request did not permit", server.last)
    media = media_type(reply)
    expect(media == "application/json", f"an answer in JSON with the Content-Type {media!a}", server.last)


@_RULES("Another method than the endpoint's is refused with 405.", once=True)
def wrong_method(server: ServerUnderTest, draw: Draw) -> None:
    exchange = server.send(HttpCall("GET", f"/v2/models/{server.model}/infer"))
    status = http_reply(exchange).status
    expect(status == 405, f"status {status} of GET infer, not 405", exchange)


@_RULES("An unknown path is not found.", once=True)
def unknown_path(server: ServerUnderTest, draw: Draw) -> None:
    exchange = server.send(HttpCall("GET", "/v2/no_such_thing"))
    status = http_reply(exchange).status
    expect(status == 404, f"status {status} of an unknown path, not 404", exchange)


def _as_json(server: ServerUnderTest, number: int) -> tuple[Document, HttpCall]:
    """A valid request as a JSON document, and its message. It requests an answer in JSON."""
    for specs, side in ((server.known.inputs, "input"), (server.known.outputs, "output")):
        skip_if(
            any(spec.datatype in (Datatype.FP16, Datatype.BF16) for spec in specs),
            f"an {side} has no form in JSON",
        )
    sent = http_request(server.encoded(server.sample(number), "JSON"))
    document: Document = orjson.loads(b"".join(map(bytes, sent.parts)))
    for tensor in document["inputs"]:
        tensor["data"] = _flat(tensor["data"])
    return document, sent


def _flat(data: Any) -> list[Any]:
    return [leaf for item in data for leaf in _flat(item)] if isinstance(data, list) else [data]


def _nest(data: list[Any], shape: list[int]) -> list[Any]:
    for size in reversed(shape[1:]):
        data = [data[at : at + size] for at in range(0, len(data), size)]
    return data


def _outputs(server: ServerUnderTest, sent: HttpCall, document: Document) -> Mapping[str, Document]:
    """The outputs by name of an answer that must be valid."""
    exchange = server.send(server.form.with_body(sent, orjson.dumps(document)))
    reply = http_reply(exchange)
    if not _succeeded(exchange):
        text = bytes(reply.body[:200]).decode(errors="replace")
        raise ViolationError(f"a good request was refused: {text}", exchange)
    _check_answer(server.request(()), exchange)
    length = reply.headers.get(_LENGTH)
    body = bytes(reply.body)
    answer = orjson.loads(body[: int(length)] if length is not None else body)
    return {output["name"]: output for output in answer["outputs"]}


def _same_outputs(
    server: ServerUnderTest, sent: HttpCall, document: Document, other: Document, what: str
) -> None:
    right, have = (
        {name: _flat(output.get("data")) for name, output in _outputs(server, sent, each).items()}
        for each in (document, other)
    )
    expect(right == have, f"with {what} the answer differs", server.last)


def _refused(server: ServerUnderTest, sent: HttpCall, document: Document | bytes, what: str) -> None:
    body = document if isinstance(document, bytes) else orjson.dumps(document)
    server.refuses(server.send(server.form.with_body(sent, body)), Mistake.MALFORMED, what)


WIRE = Wire(
    _succeeded,
    _check_error,
    _check_answer,
    {"binary": HTTP_CALLS[Operation.INFER], "JSON": HTTP_JSON_CALLS[Operation.INFER]},
    tuple(_RULES.checks),
    extensions={"binary": _BINARY, **EXTENSIONS},
    textual=frozenset({"JSON"}),
    ids=PLAIN_IDS,
    any_ids=ANY_IDS,
    list_models=_list_models,
    classes={
        "binary": with_classes(HTTP_CALLS[Operation.INFER]),
        "JSON": with_classes(HTTP_JSON_CALLS[Operation.INFER]),
    },
    memory=HTTP_MEMORY,
)
