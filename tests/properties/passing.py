"""One message through a bridge to an upstream of the same wire: passed through, or decoded and encoded.

The upstream is a reply that is fixed, so that both ways read the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import (
    BrpcAnswer,
    FramedAnswer,
    FramedReply,
    FramedRequest,
    GrpcAnswer,
    HttpAnswer,
    HttpCall,
    HttpReply,
    HttpRequest,
    parts_of,
)
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import Context, InferenceError, InferRequest, InferResponse, Operation, Signature
from interlingua.translator.serving.observation import Observed
from tests.loopback import serving
from tests.properties.through import _encoded, _endpoint, received

Wire = tuple[str, str]

MODEL = "model"

PASSING: list[Wire] = [
    (name, transport)
    for name, dialect in DIALECTS.items()
    for transport, binding in sorted(dialect.bindings.items())
    if binding.calls[Operation.INFER].passthrough is not None
]
"""The wires whose messages pass through."""

_FROM_HERE = frozenset({"x-request-id", "server-timing", "date"})


class Counting(Upstream):
    """An upstream that counts the messages that pass through."""

    passed = 0

    async def forward(self, *arguments: Any) -> Any:
        self.passed += 1
        return await super().forward(*arguments)

    def read(self, *arguments: Any) -> Any:
        self.passed += 1
        return super().read(*arguments)


class Decoding(Counting):
    """An upstream to which nothing passes through."""

    def _offer_passthrough(self) -> None:
        """Nothing passes."""


@dataclass
class Server:
    """A client of any transport whose server answers every request with ``reply``."""

    reply: Any
    seen: list[Any] = field(default_factory=list)

    async def send(self, request: Any) -> Any:
        self.seen.append(request)
        return self.reply

    async def close(self) -> None:
        """Nothing is open."""


@dataclass
class Outcome:
    """What the caller, the server and an observer got, and whether the message passed through."""

    answer: Any
    seen: list[Any]
    passed: bool
    observed: list[Any] = field(default_factory=list)


class Observing:
    """An observer of everything."""

    max_stream_bytes = 1 << 20

    def __init__(self) -> None:
        self.seen: list[Observed] = []

    def should_observe(self, request: InferRequest) -> bool:
        return True

    def on_response(self, observed: Observed) -> None:
        self.seen.append(observed)

    @property
    def facts(self) -> list[Any]:
        """What was observed, without times."""
        return [
            (
                replace(each.request, context=Context(), wire_form=None, outputs=None),
                [output.name for output in each.request.outputs or ()],
                [bytes(tensor.view) for tensor in each.request.inputs],
                [replace(response, wire_form=None) for response in each.responses],
                [bytes(tensor.view) for response in each.responses for tensor in response.outputs],
                each.error and (each.error.code, each.error.message),
                (each.answered_by, each.dialect, each.listener, each.max_batch_size),
            )
            for each in self.seen
        ]


@dataclass
class Bridge:
    """A bridge from ``wire`` to ``wire`` in front of a model with ``signature``, whose upstream has other
    names for tensors where ``inputs`` and ``outputs`` say so."""

    wire: Wire
    signature: Signature
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    remote: str = MODEL
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def remote_signature(self) -> Signature:
        return Signature(
            tuple(
                replace(each, name=self.inputs.get(each.name, each.name)) for each in self.signature.inputs
            ),
            tuple(
                replace(each, name=self.outputs.get(each.name, each.name)) for each in self.signature.outputs
            ),
            self.signature.max_batch_size,
        )

    def message(self, request: InferRequest) -> Any:
        """The bytes of ``request``, as the dialect's own client writes them."""
        return _encoded(self.wire, Operation.INFER, request, self.signature)[0]

    def reply(self, request: InferRequest, response: InferResponse) -> Any:
        """The bytes of ``response``, all in the upstream's names."""
        asked, _ = _encoded(self.wire, Operation.INFER, request, self.remote_signature)
        opened = _endpoint(self.wire, asked).open(asked)
        _, form = opened.action.decode(opened, self.remote_signature)
        return received(opened.action.encode(form, response))

    def renamed(self, request: InferRequest) -> InferRequest:
        """``request`` in the upstream's names."""
        outputs = request.outputs
        if outputs is not None:
            outputs = tuple(replace(each, name=self.outputs.get(each.name, each.name)) for each in outputs)
        inputs = tuple(each.renamed(self.inputs.get(each.name, each.name)) for each in request.inputs)
        return replace(request, inputs=inputs, outputs=outputs)

    async def ask(self, message: Any, reply: Any, *, passing: bool, observed: bool = False) -> Outcome:
        binding = DIALECTS[self.wire[0]].bindings[self.wire[1]]
        server = Server(reply)
        upstream = (Counting if passing else Decoding)("there", binding.calls, [server], 5.0)
        target = UpstreamModel(
            MODEL,
            upstream,
            self.remote if binding.capability.many_models else "",
            inputs=self.inputs,
            outputs=self.outputs,
            declared=self.signature,
            widened=binding.capability.widened,
            **self.options,
        )
        dialect, transport = self.wire
        pipeline = serving({MODEL: target}, dialect, transport=transport, default_model=MODEL)
        observer = Observing()
        if observed:
            pipeline.service.observers = (observer,)
        handler: Any = pipeline.handlers[self.wire[1]]
        message = replace(message, context=Context())
        answer = (handler.head(message) if self.wire[1] == "http" else None) or await handler.serve(message)
        await pipeline.service.copies.finish()
        return Outcome(answer, server.seen, bool(upstream.passed), observer.facts)

    def understood(self, call: Any) -> tuple[Any, ...]:
        """What the upstream reads in ``call``."""
        if isinstance(call, HttpCall):
            headers = {name.lower(): value for name, value in call.headers.items()}
            call = replace(_asked(call), headers=headers)
        elif self.wire[1] == "tcp":
            call = FramedRequest(b"".join(map(bytes, call.parts))[4:], call.context)
        opened = _endpoint(self.wire, call).open(call)
        request, _ = opened.action.decode(opened, self.remote_signature)
        every = {spec.name for spec in self.remote_signature.outputs}
        outputs = every if request.outputs is None else {each.name for each in request.outputs}
        return opened.model, replace(request, outputs=None, context=Context()), outputs

    def agreed(self, request: InferRequest, passed: Outcome, decoded: Outcome) -> None:
        """Assert that the caller and the server cannot tell both outcomes apart."""
        one, other = (self._read(request, each.answer) for each in (passed, decoded))
        assert one == other
        assert [*map(self.understood, passed.seen)] == [*map(self.understood, decoded.seen)]

    def _read(self, request: InferRequest, answer: Any) -> Any:
        """What the caller reads in ``answer``: the bytes of an error."""
        if isinstance(answer, HttpAnswer):
            headers = {
                name.lower(): value for name, value in answer.headers if name.lower() not in _FROM_HERE
            }
            if answer.status != 200:
                return answer.status, headers, b"".join(parts_of(answer))
        elif isinstance(answer, GrpcAnswer | BrpcAnswer) and answer.code:
            return answer.code, getattr(answer, "details", "") or getattr(answer, "text", "")
        _, kept = _encoded(self.wire, Operation.INFER, request, self.signature)
        if isinstance(answer, FramedAnswer):
            frame = b"".join(map(bytes, answer.parts))
            assert int.from_bytes(frame[:4], "little") == len(frame) - 4
        decode = DIALECTS[self.wire[0]].bindings[self.wire[1]].calls[Operation.INFER].decode
        try:
            response = decode(kept, received(answer))
        except InferenceError as error:  # in band
            return error.code, error.message
        assert response.outputs is not None
        # the order of the outputs counts, the bytes of floats as well
        return replace(response, wire_form=None), [bytes(each.view) for each in response.outputs]


def _asked(call: HttpCall) -> HttpRequest:
    return HttpRequest(call.method, call.path, call.query, call.headers, b"".join(call.parts))


@st.composite
def damaged(draw: st.DrawFn, body: bytes) -> bytes:
    """``body`` cut short, or with a few bytes replaced, removed or added."""
    spoilt = bytearray(body[: draw(st.integers(0, len(body)))] if draw(st.booleans()) else body)
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(spoilt)))
        width = draw(st.integers(0, 3))
        words = [b"null", b"[]", b"{}", b"-1", b"1e9", b"NaN", b'"', b"true", b"1", b"99999999999999999999"]
        spoilt[place : place + width] = draw(st.binary(max_size=3) | st.sampled_from(words))
    return bytes(spoilt)


def with_bytes(message: Any, spoil: Any) -> Any:
    """A request or a reply with its bytes as ``spoil`` leaves them."""
    if isinstance(message, HttpReply) or hasattr(message, "body"):
        return replace(message, body=spoil(bytes(message.body)))
    if isinstance(message, FramedReply | GrpcAnswer | BrpcAnswer) or hasattr(message, "message"):
        return replace(message, message=spoil(bytes(message.message)))
    raise TypeError(type(message).__name__)
