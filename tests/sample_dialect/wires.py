"""What the conformance kit must know of the sample."""

from __future__ import annotations

from interlingua.schemas import InferRequest, Operation
from interlingua.translator.conformance.errors import ViolationError, expect
from interlingua.translator.conformance.exchange import WireExchange
from interlingua.translator.conformance.replies import http_reply
from interlingua.translator.conformance.wire import Mistake, Wire
from tests.sample_dialect.client import CALLS
from tests.sample_dialect.codec import read


def _succeeded(exchange: WireExchange) -> bool:
    return http_reply(exchange).status == 200


def _check_error(exchange: WireExchange, mistake: Mistake) -> None:
    reply = http_reply(exchange)
    expect(400 <= reply.status < 600, f"status {reply.status} is no error", exchange)
    expect({"error", "code"} <= read(reply.body).keys(), "the error has no text or no code", exchange)


def _check_answer(request: InferRequest, exchange: WireExchange) -> None:
    if "outputs" not in read(http_reply(exchange).body):
        raise ViolationError("the answer has no outputs", exchange)


WIRES = {"http": Wire(_succeeded, _check_error, _check_answer, {"json": CALLS[Operation.INFER]})}
