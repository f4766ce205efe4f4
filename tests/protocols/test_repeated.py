"""Calls and answers that repeat: from the caches they are what they are without."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from interlingua.protocols import repeated
from interlingua.protocols.graphpipe import codec as graphpipe_codec
from interlingua.protocols.oip import codec_http, known_messages
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.repeated import BySignature, repeated_form
from interlingua.protocols.trtis import client_http
from interlingua.protocols.trtis import codec_http as codec_http_v1
from interlingua.protocols.wire import HttpReply, HttpRequest
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Operation,
    RequestedOutput,
    Signature,
    Tensor,
    TensorSpec,
)

_USERS = (known_messages, codec_http, client_http, graphpipe_codec)
_BINDINGS = [("oip", "grpc"), ("oip", "http"), ("trtis", "http"), ("graphpipe", "http"), ("graphpipe", "tcp")]


def specs(*names: str, datatype: Datatype = Datatype.FP32) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, datatype, (-1, -1)) for name in names)


BATCHED = Signature(specs("a", "b"), specs("y", "z"), 8)
PLAIN = Signature(specs("a", "b"), specs("y", "z"))
TEXTS = Signature(specs("a", "b", datatype=Datatype.BYTES), specs("y", "z"))


def requests(transport: str) -> list[tuple[InferRequest, Signature]]:
    """Requests whose forms differ in one thing each, and whose data always differ. Over tcp models have no
    names."""
    random = np.random.default_rng(1)
    found = []
    for signature, shape, outputs, version, _ in product(
        (BATCHED, PLAIN, TEXTS),
        ((1, 2), (2, 1), (2, 2), (1, 0)),
        (None, (), (RequestedOutput("z"),), (RequestedOutput("z"), RequestedOutput("y"))),
        ("",) if transport == "tcp" else ("", "3"),
        range(2),
    ):
        numbers = random.integers(0, 100, (2, *shape)).astype(np.float32)
        given: Any = numbers
        if signature is TEXTS:
            given = np.array([b"x" * int(each) for each in numbers.ravel()], object).reshape(numbers.shape)
        inputs = tuple(Tensor.from_numpy(name, each) for name, each in zip("ab", given, strict=True))
        found.append((InferRequest("" if transport == "tcp" else "m", inputs, outputs, version), signature))
    return found


def written(call: Any) -> tuple[Any, ...]:
    whole = call.whole if hasattr(call, "whole") else b"".join(call.parts)
    head = [getattr(call, name, None) for name in ("method", "path", "query", "headers")]
    return (*head, bytes(whole))


@pytest.mark.parametrize(("dialect", "transport"), _BINDINGS)
def test_a_repeated_call_is_what_it_is_alone(
    dialect: str, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = DIALECTS[dialect].bindings[transport].calls[Operation.INFER].encode
    cached = [encode(request, signature) for request, signature in requests(transport)]
    for user in _USERS:
        monkeypatch.setattr(user, "repeated_form", lambda request: None)
    alone = [encode(request, signature) for request, signature in requests(transport)]
    for (call, form), (expected, plain), (request, _) in zip(cached, alone, requests(transport), strict=True):
        assert written(call) == written(expected), request
        assert form == plain


@pytest.mark.parametrize(("dialect", "transport"), _BINDINGS)
def test_tensors_are_not_copied(dialect: str, transport: str) -> None:
    encode = DIALECTS[dialect].bindings[transport].calls[Operation.INFER].encode
    for _ in range(2):
        large = Tensor.from_numpy("a", np.ones((1, 1 << 15), np.float32))
        model = "" if transport == "tcp" else "m"
        call: Any = encode(InferRequest(model, (large, large.renamed("b"))), PLAIN)[0]
        assert sum(part is large.data for part in call.parts) == 2


def test_a_repeated_refusal_stays_one() -> None:
    half = Tensor.from_numpy("a", np.ones((1, 1), np.float16))
    signature = Signature(specs("a", datatype=Datatype.FP32), specs("y"))
    for dialect, code in (("trtis", ErrorCode.INVALID_TENSOR), ("graphpipe", None)):
        encode = DIALECTS[dialect].bindings["http"].calls[Operation.INFER].encode
        for _ in range(2):
            if code is None:
                encode(InferRequest("m", (half,)), signature)
                continue
            with pytest.raises(InferenceError) as caught:
                encode(InferRequest("m", (half,)), signature)
            assert caught.value.code is code
    brain = Tensor("a", Datatype.BF16, (1, 1), memoryview(bytes(2)))
    encode = DIALECTS["graphpipe"].bindings["http"].calls[Operation.INFER].encode
    for _ in range(2):
        with pytest.raises(InferenceError) as caught:
            encode(InferRequest("m", (brain,)), signature)
        assert caught.value.code is ErrorCode.UNREPRESENTABLE


# --- answers of version 1


def answer(outputs: str, body: bytes, status: str = "code: SUCCESS", **more: Any) -> HttpReply:
    given = f'model_name: "m" model_version: 3 batch_size: 1 {outputs}'
    headers = {"nv-status": status, "nv-inferresponse": given, **more}
    return HttpReply(200, headers, body)


def read(reply: HttpReply, signature: Signature, version: str = "") -> Any:
    call = DIALECTS["trtis"].bindings["http"].calls[Operation.INFER]
    given = Tensor.from_numpy("a", np.ones((1, 2), np.float32))
    _, pending = call.encode(InferRequest("m", (given, given.renamed("b")), version=version), signature)
    return call.decode(pending, reply)


def raw(name: str, *dims: int) -> str:
    return f'output {{ name: "{name}" raw {{ {" ".join(f"dims: {each}" for each in dims)} }} }} '


@pytest.mark.parametrize("status", ["code: SUCCESS", 'code: SUCCESS server_id: "s:0" request_id: 77'])
def test_a_repeated_answer_has_its_own_data(status: str) -> None:
    for signature, shape in ((PLAIN, (2,)), (BATCHED, (1, 2)), (PLAIN, (2,))):
        for values in (b"abcdefgh", b"ijklmnop"):
            response = read(
                answer(raw("y", 2) + raw("z", 1), values + values[:4] + b"end", status), signature
            )
            found = [(each.name, each.shape, bytes(each.view)) for each in response.outputs]
            assert found == [("y", shape, values), ("z", (*shape[:-1], 1), values[:4])]
            assert (response.model, response.version) == ("m", "3")


def test_a_known_answer_that_is_too_short_is_refused() -> None:
    read(answer(raw("y", 2), b"abcdefgh"), PLAIN)
    for _ in range(2):
        with pytest.raises(InferenceError, match="needs 8 bytes") as caught:
            read(answer(raw("y", 2), b"abcd"), PLAIN)
        assert caught.value.code is ErrorCode.BAD_UPSTREAM


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ('code: NOT_FOUND msg: "gone"', ErrorCode.NOT_FOUND),
        ('code: SUCCESS server_id: "', ErrorCode.BAD_UPSTREAM),
        ("code: SUCCESS request_id: 1 }", ErrorCode.BAD_UPSTREAM),
        ("code: SUCCESS\n", None),
    ],
)
def test_only_a_whole_success_is_one(status: str, code: ErrorCode | None) -> None:
    if code is None:
        assert read(answer(raw("y", 2), b"abcdefgh", status), PLAIN).version == "3"
        return
    with pytest.raises(InferenceError) as caught:
        read(answer(raw("y", 2), b"abcdefgh", status), PLAIN)
    assert caught.value.code is code


def test_a_signature_has_entries_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    cache: BySignature[int] = BySignature()
    first, second = Signature((), ()), Signature((), ())
    cache.put(first, "key", 1)
    cache.put(second, "key", 2)
    assert (cache.get(first, "key"), cache.get(second, "key"), cache.get(first, "other")) == (1, 2, None)
    monkeypatch.setattr(repeated, "MOST", 2)
    cache.put(second, "other", 3)
    assert (cache.get(first, "key"), cache.get(second, "key")) == (None, 2)


def test_a_request_of_unusual_size_is_not_cached() -> None:
    deep = Tensor("a", Datatype.FP32, (1,) * 9, memoryview(bytes(4)))
    assert repeated_form(InferRequest("m", (deep,))) is None
    assert repeated_form(InferRequest("m" * 5000, ())) is None
    assert repeated_form(InferRequest("m", (), ())) == ((), (), [])


# --- requests of version 1, as a server


def served(call: Any, signature: Signature) -> tuple[Any, Any]:
    """The request of ``call``, and the answer that returns its inputs as the outputs."""
    headers = {name.lower(): value for name, value in call.headers.items()}
    body = b"".join(call.parts)
    message = HttpRequest("POST", call.path, call.query, headers, body, {"model": "m"})
    opened = _TRTIS_INFER.open(message)
    request, form = opened.action.decode(opened, signature)
    outputs = [each.renamed(name) for each, name in zip(request.inputs, "yz", strict=True)]
    if signature is TEXTS:  # its outputs are numbers
        outputs = [Tensor.from_numpy(each.name, np.ones(each.shape, np.float32)) for each in outputs]
    wanted = {each.name for each in request.outputs}
    outputs = [each for each in outputs if each.name in wanted]
    answer = opened.action.encode(form, InferResponse("m", tuple(outputs), "3"))
    return request, (answer.status, answer.headers, list(map(bytes, answer.parts)))


_TRTIS_INFER = next(
    each for each in DIALECTS["trtis"].bindings["http"].endpoints if each.path == "/api/infer/{model}"
)


def test_a_repeated_request_is_served_as_if_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = DIALECTS["trtis"].bindings["http"].calls[Operation.INFER].encode
    for asked, signature in requests("http"):
        call: Any = encode(asked, signature)[0]
        repeatedly = served(call, signature)
        with monkeypatch.context() as patch:
            patch.setattr(codec_http_v1, "_REQUESTS", BySignature())
            patch.setattr(codec_http_v1, "_ANSWERS", BySignature())
            alone = served(call, signature)
        assert repeatedly == alone
        assert repeatedly[0].inputs == asked.inputs


@pytest.mark.parametrize(
    ("more", "words"), [(b"", "unexpected size for input"), (b"12345", "additional input")]
)
def test_a_known_request_with_other_data_is_refused(more: bytes, words: str) -> None:
    encode = DIALECTS["trtis"].bindings["http"].calls[Operation.INFER].encode
    given = Tensor.from_numpy("a", np.ones((1, 2), np.float32))
    call: Any = encode(InferRequest("m", (given, given.renamed("b"))), PLAIN)[0]
    served(call, PLAIN)
    call.parts = [b"".join(call.parts)[:12], more]
    with pytest.raises(InferenceError, match=words):
        served(call, PLAIN)
