"""What a peer receives of a request, and what the caller gets of its answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import yaml

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import GrpcAnswer
from interlingua.runtime.models.turns import Turns
from interlingua.runtime.peers.model import PeerModel
from interlingua.runtime.peers.wide_ids import widen
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Context,
    Datatype,
    InferRequest,
    InferResponse,
    Operation,
    RequestedOutput,
    Sequence,
    Tensor,
)
from interlingua.translator.assembly import assemble, load_local
from interlingua.translator.config import parse

SERVED = {"datatype": "FP32", "shape": [-1]}
IDENTITY = {
    "backend": "identity",
    "signature": {
        "inputs": [{"name": "a", **SERVED}, {"name": "b", **SERVED}],
        "outputs": [{"name": "x", **SERVED}, {"name": "y", **SERVED}],
    },
}


def tensor(name: str, number: float) -> Tensor:
    return Tensor(name, Datatype.FP32, (1,), memoryview(np.array([number], np.float32).tobytes()))


@pytest.mark.parametrize("identity", [7, 2**64 - 1, "text"])
async def test_every_field_arrives(identity: int | str) -> None:
    actions = {each.method.rpartition("/")[2]: each for each in DIALECTS["oip"].bindings["grpc"].endpoints}
    received: list[InferRequest] = []

    class Client:
        """Reads a call as a listener does, and answers as one."""

        async def send(self, message: Any) -> GrpcAnswer:
            signature = await local.signature()
            opened = actions["ModelInfer"].open(replace(message, message=whole(message)))
            request, form = opened.action.decode(opened, signature)
            received.append(request)
            outputs = (tensor("y", 2.0), tensor("x", 1.0))
            return opened.action.encode(form, InferResponse("m", outputs, "3", parameters={"p": "q"}))

    document = {"listeners": [{"listen": "127.0.0.1:0", "transport": "http"}], "models": {"m": IDENTITY}}
    config = parse(yaml.safe_dump(document))
    local = assemble(config, load_local(config)).service.catalog.models["m"]
    calls = DIALECTS["oip"].bindings["grpc"].flavored("triton").calls
    model = PeerModel(local, Upstream("peers", calls, [Client()], 5.0), Turns())
    request = InferRequest(
        "alias",
        (tensor("a", 1.0), tensor("b", 2.0)),
        (RequestedOutput("x", classification=1), RequestedOutput("y")),
        "1",
        "an id",
        {"text": "é", "int": -(2**63), "float": 0.1, "bool": True},
        Sequence(identity, start=True, end=True),
        priority=2**64 - 1,
        timeout_us=5,
        context=Context(),
    )
    answer = await model.infer(request)
    (found,) = received
    widen(found)
    assert found.model == "m" and [each.name for each in found.outputs or ()] == ["x", "y"]
    for name in ("version", "id", "parameters", "sequence", "priority", "timeout_us"):
        assert getattr(found, name) == getattr(request, name), name
    assert [each.name for each in answer.outputs] == ["x", "y"]
    assert (answer.model, answer.id, answer.version, answer.parameters) == ("m", "an id", "3", {"p": "q"})
    assert request.context.timings["upstream"] > 0
    # the dialect has no form for no outputs
    assert (await model.infer(replace(request, outputs=()))).outputs == ()
    assert Operation.INFER in calls


@pytest.mark.parametrize("identity", ["5", "0", "\u0663", "text", "9" * 20, "9" * 5000])
def test_a_parameter_of_the_caller_changes_no_id(identity: str) -> None:
    parameters = {"interlingua_number": True}
    request = InferRequest("m", (), parameters=parameters, sequence=Sequence(identity))
    widen(request)
    assert request.sequence == Sequence(identity) and request.parameters == parameters


def whole(message: Any) -> bytes:
    return b"".join(map(bytes, message.parts)) if message.parts else bytes(message.message)
