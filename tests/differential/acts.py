"""The table of what upstreams do between answers that repeat."""

from __future__ import annotations

import gzip
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

from interlingua.protocols.wire import BrpcAnswer, FramedAnswer, GrpcAnswer, HttpAnswer, parts_of
from interlingua.schemas import Datatype, ErrorCode, InferenceError, InferResponse, Tensor
from tests.differential.calls import Kit, tensors
from tests.differential.scenarios import WARM, reconnects, usual
from tests.differential.standin import Act
from tests.differential.world import Do, Scenario, Step


def _outputs(change: Callable[[Tensor, Tensor], Sequence[Tensor]]) -> Act:
    return Act(lambda response: replace(response, outputs=tuple(change(*response.outputs))))


def _response(**changes: Any) -> Act:
    return Act(lambda response: replace(response, **changes))


def _fails(code: ErrorCode) -> Act:
    def fail(response: InferResponse) -> InferResponse:
        raise InferenceError(code, f"the model answers with {code.name}")

    return Act(fail)


def _longer(each: Tensor) -> Tensor:
    shape = (*each.shape[:-1], 2 * each.shape[-1])
    return replace(each, shape=shape, data=memoryview(bytes(2 * bytes(each.view))))


def _large(count: int) -> Act:
    """Outputs of ``count`` elements."""
    return _outputs(
        lambda a, b: (
            replace(a, shape=(1, count), data=memoryview(bytes(4 * count))),
            replace(b, shape=(count,), data=memoryview(bytes(4 * count))),
        )
    )


RESPONSES: dict[str, Act] = {
    "a shape": _outputs(lambda a, b: (replace(a, shape=(2, 1)), b)),
    "a datatype": _outputs(lambda a, b: (replace(a, datatype=Datatype.INT32), b)),
    "an order": _outputs(lambda a, b: (b, a)),
    "a name": _outputs(lambda a, b: (replace(a, name="z"), b)),
    "fewer": _outputs(lambda a, b: (a,)),
    "none": _outputs(lambda a, b: ()),
    "more": _outputs(lambda a, b: (a, b, replace(a, name="c"))),
    "longer": _outputs(lambda a, b: (_longer(a), _longer(b))),
    "large": _large(10_000),
    "a version": _response(version="2"),
    "another version": _response(version="33"),
    "an id": _response(id="other"),
    "parameters": _response(parameters={"p": 1}),
    "a model": _response(model="other"),
}
"""Another response."""

_CODES = ("NOT_FOUND", "INVALID_TENSOR", "UNAVAILABLE", "MODEL_FAILED", "OVERLOADED", "UNSUPPORTED")
FAILURES = {name: _fails(ErrorCode[name]) for name in _CODES}
"""An error of the server."""


def _body(change: Callable[[bytes], bytes], *headers: tuple[str, str]) -> Act:
    """Other bytes, over every transport."""

    def act(answer: Any, number: int) -> Any:
        if isinstance(answer, HttpAnswer):
            return HttpAnswer(
                answer.status, (*answer.headers, *headers), (change(b"".join(parts_of(answer))),)
            )
        if isinstance(answer, FramedAnswer):
            body = change(b"".join(answer.parts)[4:])
            return FramedAnswer((len(body).to_bytes(4, "little"), body))
        changed = change(bytes(answer.whole if isinstance(answer, GrpcAnswer) else answer.message))
        return replace(answer, message=changed, **({"parts": ()} if isinstance(answer, GrpcAnswer) else {}))

    return Act(answer=act)


def _status(http: int, grpc: int, brpc: int) -> Act:
    def act(answer: Any, number: int) -> Any:
        if isinstance(answer, HttpAnswer):
            return HttpAnswer(http, answer.headers, answer.parts)
        if isinstance(answer, GrpcAnswer):
            return GrpcAnswer(code=grpc, details=f"status {grpc}")
        return BrpcAnswer(code=brpc, text=f"status {brpc}") if isinstance(answer, BrpcAnswer) else answer

    return Act(answer=act)


def _unique(answer: Any, number: int) -> Any:
    """Headers that no other answer has."""
    more = (("x-unique", str(number)), ("x-request-id", f"id-{number}"))
    if isinstance(answer, HttpAnswer):
        return HttpAnswer(answer.status, (*answer.headers, *more), answer.parts)
    if isinstance(answer, GrpcAnswer):
        return replace(answer, trailing=(*answer.trailing, *more))
    return replace(answer, headers=more) if isinstance(answer, BrpcAnswer) else answer


def _streamed(answer: Any, number: int) -> Any:
    """A body without a length, over HTTP."""

    async def parts() -> AsyncIterator[Any]:
        for part in parts_of(answer):
            yield part

    return HttpAnswer(answer.status, answer.headers, parts()) if isinstance(answer, HttpAnswer) else answer


WIRE: dict[str, Act] = {
    "nothing": _body(lambda body: b""),
    "less": _body(lambda body: body[:-1]),
    "more": _body(lambda body: body + b"\0"),
    "twice": _body(lambda body: body + body),
    "garbage": _body(lambda body: b"\xff" * len(body)),
    "other contents": _body(lambda body: body[:-1] + b"\x11"),
    "gzip": _body(gzip.compress, ("content-encoding", "gzip")),
    "not gzip": _body(bytes, ("content-encoding", "gzip")),
    "headers": Act(answer=_unique),
    "pieces": Act(answer=_streamed),
    **{
        str(http): _status(http, grpc, brpc)
        for http, grpc, brpc in (
            *((204, 2, 2001), (302, 5, 1003), (400, 9, 1008), (404, 12, 2004), (500, 13, 1009)),
            (503, 14, 2003),
        )
    },
}
"""Other bytes, statuses and headers."""

ENDS: dict[str, Act] = {
    "before": Act(cut=lambda data: (b"", False)),
    "within": Act(cut=lambda data: (data[: len(data) // 2], False)),
}
"""Connections that end."""

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: \d+")
RAW: dict[str, Act] = {
    "an interim answer": Act(cut=lambda data: (b"HTTP/1.1 100 Continue\r\n\r\n" + data, True)),
    "surplus": Act(cut=lambda data: (data + b"surplus", True)),
    "garbage": Act(cut=lambda data: (b"\0\1\2\3 garbage\r\n\r\n", True)),
    "the last one": Act(
        cut=lambda data: (data.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1), False)
    ),
    "without a length": Act(cut=lambda data: (_LENGTH.sub(b"", data, count=1), False)),
    "another version of HTTP": Act(cut=lambda data: (data.replace(b"HTTP/1.1", b"HTTP/1.0", 1), False)),
}
"""Answers over HTTP whose bytes no handler makes."""

_JSON = (
    b'{"model_name":"m","model_version":"1","outputs":[{"name":"a","datatype":"FP32","shape":[1,2],"data":'
    b'[1.5,2.5]},{"name":"b","datatype":"INT32","shape":[2],"data":[3,4]}]}'
)
OIP_HTTP: dict[str, Act] = {
    "JSON": Act(
        answer=lambda answer, number: HttpAnswer(200, (("content-type", "application/json"),), (_JSON,))
    )
}


def after(acts: Sequence[Act], usual_between: int = 3) -> Scenario:
    """Requests that repeat, of which some get ``acts``. Those on a connection that has just been opened have
    their plan from others, while one that has lost its plan is slow to look for another."""
    every = 2 + usual_between
    script = {WARM + every * place + twice: act for place, act in enumerate(acts) for twice in range(2)}

    def steps(kit: Kit) -> list[Step]:
        found: list[Step] = [*usual(kit)]
        for number in range(len(acts)):
            found += [*usual(kit, 2, number), Do(reconnects), *usual(kit, usual_between, number)]
        return found

    return Scenario(steps, script)


def _unique_always(kit: Kit) -> list[Any]:
    return usual(kit, 12)


ANSWERS: dict[str, Scenario] = {
    "other responses": after(list(RESPONSES.values())),
    "failures": after(list(FAILURES.values()), 2),
    "other bytes": after(list(WIRE.values())),
    "unique headers": Scenario(_unique_always, dict.fromkeys(range(12), WIRE["headers"]), repeat=False),
    "ends before an answer": after([ENDS["before"]]),
    "ends within an answer": after([ENDS["within"]]),
    "too long an answer": replace(
        after([_outputs(lambda a, b: [_longer(_longer(_longer(_longer(each)))) for each in (a, b)])]),
        listener={"max_response_bytes": 400},
    ),
}
"""By what upstreams do."""

SILENCE = Scenario(
    lambda kit: usual(kit, WARM + 4), {WARM: Act(silent=True)}, upstream={"request_timeout_secs": 1.0}
)
"""No answer until a deadline has passed."""


def answers(target: str) -> dict[str, Scenario]:
    """By what upstreams do, those of ``target``."""
    if not target.endswith("/http"):
        return ANSWERS
    acts = [*RAW.values(), *(OIP_HTTP.values() if target == "oip/http" else ())]
    return {**ANSWERS, "other bytes over HTTP": after(acts), "huge": after([_large(60_000)])}


def large(size: int) -> Scenario:
    """Tensors of ``size`` elements, and acts after some."""
    acts = [RESPONSES["longer"], FAILURES["UNAVAILABLE"], WIRE["400"], ENDS["within"], RESPONSES["a version"]]
    script = {WARM + 3 * place: act for place, act in enumerate(acts)}
    return Scenario(
        lambda kit: [kit.call(tensors(each, size)) for each in range(WARM + 3 * len(acts))], script
    )
