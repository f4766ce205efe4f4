"""TRTIS over HTTP for any request, answer and stream of bytes; what any dialect must hold stands in
``test_any_to_any``."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.classification import check_ranked
from interlingua.protocols.trtis import DIALECT
from interlingua.protocols.trtis.codec import DATATYPE_NUMBERS, fold, unfold
from interlingua.protocols.wire import HttpAnswer, HttpRequest, parts_of
from interlingua.runtime.target import Target
from interlingua.schemas import (
    Datatype,
    InferenceError,
    InferRequest,
    InferResponse,
    ServerMetadata,
    Signature,
    TensorSpec,
)
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router
from tests.conformance.mutations import mutated
from tests.protocols.trtis.http_exchange import answered, decoded, header, infer
from tests.standins.trtis_contract import message
from tests.standins.trtis_http_client import HttpContext, Reply
from tests.strategies import batches, shapes, signature_of, tensors

CARRIED = list(DATATYPE_NUMBERS)
UNFORESEEN = "internal error"


# --- the batch


@given(shape=shapes(max_rank=5), limit=st.integers(0, 3))
def test_folding_undone(shape: tuple[int, ...], limit: int) -> None:
    if limit and not shape:
        return  # no tensor of a model with batches is a scalar
    signature = Signature((), (), limit)
    batch_size = shape[0] if limit else 1
    dims = fold(shape, signature)
    assert dims
    spec = TensorSpec("x", Datatype.FP32, shape)
    assert unfold(dims, batch_size, spec, signature) == shape
    # with the batch open, as models declare it
    open_spec = TensorSpec("x", Datatype.FP32, (-1, *shape[1:])) if limit else spec
    assert unfold(dims, batch_size, open_spec, signature) == shape


@given(data=st.data(), limit=st.sampled_from([0, 4]))
def test_a_body_is_cut_where_the_header_says(data: st.DataObject, limit: int) -> None:
    if limit:
        inputs, _ = data.draw(batches(CARRIED, limit))
    else:
        inputs = tuple(data.draw(tensors(CARRIED, name)) for name in ("a", "b", "c"))
    signature = signature_of(inputs, (), limit)
    order = data.draw(st.permutations(inputs))
    entries = []
    for tensor in order:
        entry: dict[str, Any] = {"name": tensor.name, "dims": fold(tensor.shape, signature)}
        if tensor.datatype is Datatype.BYTES or data.draw(st.booleans()):
            entry["batch_byte_size"] = tensor.nbytes
        entries.append(entry)
    sent = b"".join(tensor.view for tensor in order)
    batch_size = inputs[0].shape[0] if limit else 1
    request, _ = decoded(infer(body=sent, batch_size=batch_size, input=entries), signature)
    assert request.inputs == tuple(order)
    for wrong, fault in ((sent[:-1], "unexpected size"), (sent + b"x", "unexpected additional input data")):
        if len(wrong) != len(sent):
            with pytest.raises(InferenceError, match=fault):
                decoded(infer(body=wrong, batch_size=batch_size, input=entries), signature)


# --- what stands behind the tensors of an answer


def ranks(datatype: Datatype) -> bool:
    try:
        check_ranked("", datatype)
    except InferenceError:
        return False
    return True


@given(data=st.data(), limit=st.sampled_from([0, 4]))
def test_an_independent_client_finds_every_output(data: st.DataObject, limit: int) -> None:
    """Raw outputs, strings and classes in any mixture and order."""
    if limit:
        _, outputs = data.draw(batches(CARRIED, limit))
    else:
        shape = shapes(min_rank=1)
        outputs = tuple(data.draw(tensors(CARRIED, name, shape)) for name in ("é", "'\"\\", "c"))
    batch_size = outputs[0].shape[0] if limit else 1
    asked = [
        {"name": tensor.name, "cls": {"count": data.draw(st.integers(0, 3))}} if ranks(tensor.datatype)
        else {"name": tensor.name}
        for tensor in data.draw(st.permutations(outputs))
        if data.draw(st.booleans())
    ]  # fmt: skip
    signature = signature_of((), outputs, limit)
    answer = answered(infer(batch_size=batch_size, output=asked), signature, InferResponse("m", outputs, "3"))
    config = message(
        "ModelConfig",
        max_batch_size=limit,
        output=[{"name": tensor.name, "data_type": DATATYPE_NUMBERS[tensor.datatype]} for tensor in outputs],
    )
    reply = Reply(answer.status, list(answer.headers), b"".join(parts_of(answer)))
    context = HttpContext("m", 3, config, None)  # type: ignore[arg-type]  # nothing is sent
    told = context.read(reply, reply.nv_status("infer"))
    assert (told.model_name, told.model_version, told.batch_size) == ("m", 3, batch_size)
    assert list(told.outputs) == [each["name"] for each in asked]
    by_name = {tensor.name: tensor for tensor in outputs}
    for each in asked:
        tensor, found = by_name[each["name"]], told.outputs[each["name"]]
        count = each.get("cls", {}).get("count", 0)
        if not count:
            values = tensor.numpy()
            # a scalar comes as one element
            assert found.shape == ((batch_size,) if limit else ()) + fold(values.shape, signature)
            if tensor.datatype is Datatype.BYTES:
                assert found.ravel().tolist() == values.ravel().tolist()
            else:
                assert found.tobytes() == values.tobytes()
        else:
            rows = list(tensor.numpy()) if limit else [tensor.numpy()]
            # an entry without elements has no class, and a model without classes none to tell
            assert [len(entry) for entry in found] == [min(count, row.size) for row in rows]
            for entry, row in zip(found, rows, strict=True):
                flat = row.ravel()
                # a signalling NaN is an invalid value to a cast
                with np.errstate(over="ignore", invalid="ignore"):
                    expected = [np.float32(flat[place]) for place, _, _ in entry]
                np.testing.assert_array_equal(
                    np.array([value for _, value, _ in entry], np.float32), expected
                )


# --- any bytes


class Echo(Target):
    """A target that answers with its input, twice."""

    name = "m"
    _signature = Signature(
        (TensorSpec("x", Datatype.FP32, (-1, -1)), TensorSpec("s", Datatype.BYTES, (-1, 1))),
        (
            TensorSpec("y", Datatype.FP32, (-1, -1), labels=("a", "b")),
            TensorSpec("t", Datatype.BYTES, (-1, 1)),
        ),
        4,
    )

    async def signature(self, version: str = "") -> Signature:
        return self._signature

    async def infer(self, request: InferRequest) -> InferResponse:
        given = {tensor.name: tensor for tensor in request.inputs}
        wanted = {output.name for output in request.outputs or ()}
        named = {"y": given["x"].renamed("y"), "t": given["s"].renamed("t")}
        return InferResponse("m", tuple(tensor for name, tensor in named.items() if name in wanted), "1")


SERVER = Pipeline(
    Service(Router({"m": Echo()}), ServerMetadata("i", "1")), "test", [*DIALECT.bindings.values()]
)  # type: ignore[dict-item]

VALID = infer(
    body=bytes(24) + b"\x01\x00\x00\x00a\x02\x00\x00\x00bc",
    batch_size=2,
    input=[{"name": "x", "dims": [3]}, {"name": "s", "batch_byte_size": 11}],
    output=[{"name": "t"}, {"name": "y", "cls": {"count": 2}}],
    id=9,
)


def send(path: str, value: str, body: bytes, method: str = "POST") -> HttpAnswer:
    request = HttpRequest(method, path, "format=binary", {"nv-inferrequest": value}, body)
    answer = SERVER.handlers["http"].head(request)
    return asyncio.run(SERVER.handlers["http"].serve(request)) if answer is None else answer


def check(answer: HttpAnswer) -> None:
    headers = dict(answer.headers)
    if not headers:
        assert answer.status == 400
        assert b"".join(parts_of(answer)) == b""
    else:
        assert set(headers) == {"NV-InferResponse", "NV-Status", "Content-Type"}
        assert (answer.status == 200) == headers["NV-Status"].startswith("code: SUCCESS ")
        assert UNFORESEEN not in headers["NV-Status"]
        assert "".join(headers.values()).isprintable()


def test_the_request_that_is_broken_below() -> None:
    answer = send("/api/infer/m", VALID.headers["nv-inferrequest"], bytes(VALID.body))
    check(answer)
    assert answer.status == 200


@given(value=st.binary(max_size=60))
def test_any_bytes_as_the_header(value: bytes) -> None:
    check(send("/api/infer/m", value.decode("utf-8", "surrogateescape"), b""))


@given(data=st.data())
def test_a_broken_header(data: st.DataObject) -> None:
    value = data.draw(mutated(VALID.headers["nv-inferrequest"].encode()))
    check(send("/api/infer/m", value.decode("utf-8", "surrogateescape"), bytes(VALID.body)))


@given(data=st.data())
def test_a_broken_body(data: st.DataObject) -> None:
    check(send("/api/infer/m", VALID.headers["nv-inferrequest"], data.draw(mutated(bytes(VALID.body)))))


numbers = st.integers(0, 3) | st.integers(0, 2**32 - 1)
sizes = st.integers(0, 30) | st.integers(0, 2**64 - 1)
names = st.sampled_from(["x", "s", "y", "t", "", "é"])
places = st.none() | st.fixed_dictionaries({"name": names, "offset": sizes, "byte_size": sizes})
entries = st.fixed_dictionaries(
    {
        "name": names,
        "dims": st.lists(st.integers(-2, 4) | st.integers(-(2**63), 2**63 - 1), max_size=3),
        "batch_byte_size": st.just(0) | sizes,
        "shared_memory": places,
    }
)
wanted = st.fixed_dictionaries(
    {"name": names, "cls": st.none() | st.fixed_dictionaries({"count": numbers}), "shared_memory": places}
)


@given(
    fields=st.fixed_dictionaries(
        {
            "batch_size": numbers,
            "input": st.lists(entries, max_size=3),
            "output": st.lists(wanted, max_size=3),
            "correlation_id": sizes,
            "id": sizes,
            "flags": numbers,
            "priority": numbers,
            "timeout_microseconds": sizes,
        }
    ),
    body=st.binary(max_size=40),
)
def test_any_header_that_is_one(fields: dict[str, Any], body: bytes) -> None:
    check(send("/api/infer/m", header(**fields), body))


@given(
    path=st.text(st.characters(codec="ascii"), max_size=20), method=st.sampled_from(["GET", "POST", "PUT"])
)
def test_any_path(path: str, method: str) -> None:
    answer = send(f"/api/{path}", "", b"", method)
    assert answer.status in (400, 405) or method == "GET"
    assert answer.status in (200, 400, 405)
