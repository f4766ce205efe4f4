"""The Open Inference Protocol over HTTP, as it must stand on the wire."""

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
from interlingua.translator.conformance.check import Draw, Group, InapplicableError, ViolationError
from interlingua.translator.conformance.exchange import WireExchange
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.values import distinct
from interlingua.translator.conformance.wire import Mistake, Wire, expect, http_reply, http_request
from interlingua.translator.conformance.wires.oip_common import ANY_IDS, EXTENSIONS, PLAIN_IDS, with_classes
from interlingua.translator.conformance.wires.oip_memory import HTTP_MEMORY

_RULES = Group("oip-http", asks=True)

_LENGTH = "inference-header-content-length"
_BINARY = "binary_tensor_data"

_JSON_TYPES = {"b": (bool,), "i": (int,), "u": (int,), "O": (str,)}
"""What an element of a kind of NumPy's is in JSON; others are numbers."""

Document = dict[str, Any]


def _succeeded(exchange: WireExchange) -> bool:
    return isinstance(exchange.reply, HttpReply) and 200 <= exchange.reply.status < 300


def _check_error(exchange: WireExchange, mistake: Mistake) -> None:
    """A status of 4xx, 404 for what is not there, and a JSON object with the text as ``error``."""
    reply = http_reply(exchange)
    document = _document(exchange, bytes(reply.body), "an error")
    expect(
        isinstance(document.get("error"), str) and document["error"],
        f"an error (status {reply.status}) without a text as its member 'error'",
        exchange,
    )
    if mistake in (Mistake.UNKNOWN_MODEL, Mistake.UNKNOWN_VERSION):
        expect(reply.status == 404, f"status {reply.status} for {mistake.value}, not 404", exchange)
    elif mistake is not Mistake.ANY:
        expect(
            400 <= reply.status < 500, f"status {reply.status} for the caller's mistake, not 4xx", exchange
        )


def _check_answer(request: InferRequest, exchange: WireExchange) -> None:
    """Status 200; a JSON part as long as the header says; in it each output once, with its data or their size
    in the binary part, which holds those bytes and no more."""
    reply = http_reply(exchange)
    expect(reply.status == 200, f"status {reply.status} of an answer, not 200", exchange)
    body = bytes(reply.body)
    length = reply.headers.get(_LENGTH)
    end = len(body)
    if length is not None:
        expect(length.isdigit() and int(length) <= end, f"{_LENGTH} is {length} of {end} bytes", exchange)
        end = int(length)
    document = _document(exchange, body[:end], "an answer")
    expect(isinstance(document.get("model_name"), str), "the answer has no 'model_name'", exchange)
    outputs = document.get("outputs")
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise ViolationError("'outputs' is not an array of objects", exchange)
    names = [output.get("name") for output in outputs]
    expect(len(set(map(str, names))) == len(names), f"two of the outputs {names} have one name", exchange)
    tail = sum(_check_output(exchange, output) for output in outputs)
    expect(tail == len(body) - end, f"{len(body) - end} binary bytes, the outputs say {tail}", exchange)


def _check_output(exchange: WireExchange, output: Document) -> int:
    """The binary bytes that belong to ``output``."""
    name, kind, shape = (output.get(member) for member in ("name", "datatype", "shape"))
    expect(isinstance(name, str) and name, "an output has no name", exchange)
    datatype = DATATYPES.get(kind) if isinstance(kind, str) else None
    if datatype is None:
        raise ViolationError(f"output '{name}' has the datatype {kind!a}, which the protocol lacks", exchange)
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ViolationError(f"output '{name}' has the shape {shape!a}", exchange)
    count = element_count(shape)
    parameters = output.get("parameters") or {}
    size = parameters.get("binary_data_size")
    expect(
        ("data" in output) != (size is not None), f"output '{name}' has data twice or not at all", exchange
    )
    if size is None:
        data = output["data"]
        expect(isinstance(data, list), f"the data of output '{name}' are no array", exchange)
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


def _document(exchange: WireExchange, body: bytes, what: str) -> Document:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        status = exchange.reply.status if isinstance(exchange.reply, HttpReply) else 0
        raise ViolationError(f"{what} (status {status}) that is no JSON: {error}", exchange) from error
    if not isinstance(document, dict):
        raise ViolationError(f"{what} that is no JSON object", exchange)
    return document


def _list_models(server: ServerUnderTest) -> tuple[str, ...]:
    """The models that are ready, by the repository extension, or by the list that some servers have."""
    exchange = server.send(HttpCall("POST", "/v2/repository/index", parts=[b"{}"]))
    if _succeeded(exchange):
        entries = orjson.loads(bytes(http_reply(exchange).body))
        ready = [entry["name"] for entry in entries if entry.get("state") == "READY"]
        return tuple(dict.fromkeys(ready))
    exchange = server.send(HttpCall("GET", "/v2/models"))
    if _succeeded(exchange):
        return tuple(_document(exchange, bytes(http_reply(exchange).body), "a list").get("models", ()))
    return ()


# --- rules of this wire alone


@_RULES("Data may be nested as the shape says, or flat.")
def nested_data(server: ServerUnderTest, draw: Draw) -> None:
    flat, sent = _as_json(server, draw(st.integers(0, 50)))
    nested = orjson.loads(orjson.dumps(flat))
    for tensor in nested["inputs"]:
        tensor["data"] = _nest(tensor["data"], tensor["shape"])
    _same_outputs(server, sent, flat, nested, "nested data")


@_RULES("Members that the protocol does not have are ignored.")
def unknown_members(server: ServerUnderTest, draw: Draw) -> None:
    document, sent = _as_json(server, 1)
    name = draw(st.text("abcdefgh_", min_size=1, max_size=8)).join(("x_", "_y"))
    value: Any = draw(st.sampled_from((1, "text", None, [1, 2], {"a": {}})))
    place = draw(st.sampled_from(("request", "input")))
    more = orjson.loads(orjson.dumps(document))
    (more if place == "request" else more["inputs"][0])[name] = value
    _same_outputs(server, sent, document, more, f"an unknown member of the {place}")


@_RULES("An empty list of outputs asks for all of them.", once=True)
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
    if not places:
        raise InapplicableError("no input has integers")
    tensor = document["inputs"][draw(st.sampled_from(places))]
    kind = DATATYPES[tensor["datatype"]].dtype
    largest = 2 ** (kind.itemsize * 8 - (kind.kind == "i")) - 1
    number = largest + draw(st.integers(1, 300))
    if kind.itemsize == 8:
        raise InapplicableError("beyond 64 bits, JSON has no integers")
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


@_RULES("What is not JSON is refused.")
def not_json(server: ServerUnderTest, draw: Draw) -> None:
    document, sent = _as_json(server, 1)
    text = orjson.dumps(document)
    broken = draw(
        st.sampled_from(
            (b"", b"[]", b"null", text[:-1], text + b"}", b"{}" + text, text.replace(b":", b"=", 1))
        )
    )
    _refused(server, sent, broken, "a body that is not one JSON object")


@_RULES("A length of the JSON part that is not that of the JSON part is refused.")
def wrong_header_length(server: ServerUnderTest, draw: Draw) -> None:
    if "binary" not in server.forms:
        raise InapplicableError(f"the server does not list the extension {_BINARY}")
    sent = http_request(server.encoded(server.request(distinct(server.known, 1)), "binary"))
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


@_RULES("Each output comes in the form that was asked for: binary or JSON.")
def output_form(server: ServerUnderTest, draw: Draw) -> None:
    if "binary" not in server.forms:
        raise InapplicableError(f"the server does not list the extension {_BINARY}")
    document, sent = _as_json(server, 1)
    asked = {spec.name: draw(st.booleans()) for spec in server.known.outputs}
    if any(spec.datatype in (Datatype.FP16, Datatype.BF16) for spec in server.known.outputs):
        raise InapplicableError("an output has no form in JSON")
    document["outputs"] = [
        {"name": name, "parameters": {"binary_data": binary}} for name, binary in asked.items()
    ]
    outputs = _outputs(server, sent, document)
    for name, binary in asked.items():
        expect(name in outputs, f"output '{name}' is missing", server.last)
        have = "data" not in outputs[name]
        expect(have == binary, f"output '{name}' came {'binary' if have else 'as JSON'}", server.last)


@_RULES("Without asking for binary data, an answer is JSON alone.", once=True)
def json_by_default(server: ServerUnderTest, draw: Draw) -> None:
    document, sent = _as_json(server, 1)
    _outputs(server, sent, document)
    reply = http_reply(server.last)
    expect(_LENGTH not in reply.headers, "binary data, which nobody asked for", server.last)
    media = reply.headers.get("content-type", "").partition(";")[0].strip()
    expect(media == "application/json", f"an answer in JSON with the Content-Type {media!a}", server.last)


@_RULES("Another method than the endpoint's is refused with 405.", once=True)
def wrong_method(server: ServerUnderTest, draw: Draw) -> None:
    exchange = server.send(HttpCall("GET", f"/v2/models/{server.model}/infer"))
    reply = exchange.reply
    expect(
        isinstance(reply, HttpReply) and reply.status == 405, "GET of infer was not answered 405", exchange
    )


@_RULES("A path that is none of the protocol's is not found.", once=True)
def unknown_path(server: ServerUnderTest, draw: Draw) -> None:
    exchange = server.send(HttpCall("GET", "/v2/no_such_thing"))
    expect(http_reply(exchange).status == 404, "a path that is none is not 404", exchange)


def _as_json(server: ServerUnderTest, number: int) -> tuple[Document, HttpCall]:
    """A good request as a JSON document, and the message that carries it. The answer is to be JSON."""
    for specs, side in ((server.known.inputs, "input"), (server.known.outputs, "output")):
        if any(spec.datatype in (Datatype.FP16, Datatype.BF16) for spec in specs):
            raise InapplicableError(f"an {side} has no form in JSON")
    sent = http_request(server.encoded(server.request(distinct(server.known, number)), "JSON"))
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


def _sent(sent: HttpCall, document: Document | bytes) -> HttpCall:
    body = document if isinstance(document, bytes) else orjson.dumps(document)
    return replace(sent, parts=[body] if body else [])


def _outputs(server: ServerUnderTest, sent: HttpCall, document: Document) -> Mapping[str, Document]:
    """The outputs of an answer that must be one, by name."""
    exchange = server.send(_sent(sent, document))
    reply = http_reply(exchange)
    if not _succeeded(exchange):
        words = bytes(reply.body[:200])
        raise ViolationError(f"a good request was refused: {words.decode(errors='replace')}", exchange)
    _check_answer(server.request(()), exchange)
    length = reply.headers.get(_LENGTH)
    body = bytes(reply.body)
    answer = orjson.loads(body[: int(length)] if length is not None else body)
    return {output["name"]: output for output in answer["outputs"]}


def _same_outputs(
    server: ServerUnderTest, sent: HttpCall, document: Document, other: Document, what: str
) -> None:
    right, have = _outputs(server, sent, document), _outputs(server, sent, other)
    expect(
        {name: _flat(output.get("data")) for name, output in right.items()}
        == {name: _flat(output.get("data")) for name, output in have.items()},
        f"with {what} the answer is another",
        server.last,
    )


def _refused(server: ServerUnderTest, sent: HttpCall, document: Document | bytes, what: str) -> None:
    server.refuses(server.send(_sent(sent, document)), Mistake.MALFORMED, what)


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
