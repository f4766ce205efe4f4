"""What a caller calls a model and its version does not change the path of an upstream."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import GrpcRequest
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.schemas import (
    Context,
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    ModelRef,
    Operation,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.schemas.oip import MESSAGES
from tests.loopback import HttpLoopback, behind, echoing, serving

X = TensorSpec("x", Datatype.FP32, (-1,))
SIGNATURE = Signature((X,), (X,))
VALUES = np.arange(3, dtype=np.float32)
HTTP = [name for name, dialect in DIALECTS.items() if "http" in dialect.bindings]
VERSIONS = [".", "..", "a/b", "1/../../other/versions/1"]
REFUSED = ErrorCode.INVALID_TENSOR, ErrorCode.UNREPRESENTABLE


def asked(model: str, version: str) -> InferRequest:
    return InferRequest(model, (Tensor.from_numpy("x", VALUES),), version=version, context=Context())


def bridge(
    dialect: str, remote: str = "m", declared: Signature | None = None
) -> tuple[HttpLoopback, UpstreamModel]:
    """A model behind a server of ``dialect``, and the client of that, which knows the paths."""
    there = serving(echoing({remote: SIGNATURE}), dialect, transport="http", default_model=remote)
    model = behind(there, dialect, "http", remote, declared=declared)
    (member,) = model.upstream.pool.members
    assert isinstance(member.client, HttpLoopback)
    return member.client, model


def calls() -> Iterator[Any]:
    for name in HTTP:
        binding = DIALECTS[name].bindings["http"]
        for flavor in ("", *binding.flavors):
            for operation, call in binding.flavored(flavor).calls.items():
                yield pytest.param(operation, call, id=f"{name}-{flavor}-{operation.value}")


@pytest.mark.parametrize(("operation", "call"), [*calls()])
def test_no_call_has_a_segment_that_leads_elsewhere(operation: Operation, call: Any) -> None:
    infers = operation in (Operation.INFER, Operation.INFER_STREAM)
    for model, version in product(("m", "..", "."), ("", *VERSIONS)):
        argument = asked(model, version) if infers else ModelRef(model, version)
        code, path = None, ""
        try:
            path = call.encode(argument, SIGNATURE)[0].path
        except InferenceError as error:
            code = error.code
        if code is None:
            assert not {".", ".."} & set(path.split("/")) and "%2F" not in path.upper()
        elif model != "m":
            assert code is ErrorCode.NOT_FOUND
        else:
            assert version and code in REFUSED


@pytest.mark.parametrize("declared", [SIGNATURE, None])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dialect", ["oip", "trtis", "tfserving", "graphpipe"])
async def test_a_version_that_leads_elsewhere_is_invalid(
    dialect: str, version: str, declared: Signature | None
) -> None:
    client, model = bridge(dialect, declared=declared)
    for call in (model.infer(asked("m", version)), model.metadata(version)):
        code = None
        try:
            await call
        except InferenceError as error:
            code = error.code
        assert code in (*REFUSED, None)
    assert not (await model.ready(version)).ready or dialect == "graphpipe"
    segments = [segment for path in client.asked for segment in path.split("/")]
    assert not {".", "..", "other"} & set(segments) and not any("%2F" in each for each in segments)


async def test_a_configured_name_may_have_a_slash() -> None:
    client, model = bridge("oip", remote="org/name", declared=None)
    answer = await model.infer(asked("m", ""))
    assert answer.outputs[0].numpy().tolist() == VALUES.tolist()
    assert set(client.asked) >= {"/v2/models/org%2Fname/infer"}


@pytest.mark.parametrize("version", [*VERSIONS, "x", "-1"])
@pytest.mark.parametrize(
    ("rpc", "declared"),
    [("ModelInfer", SIGNATURE), *((rpc, None) for rpc in ("ModelInfer", "ModelMetadata", "ModelConfig"))],
)
async def test_a_version_that_is_no_number_is_an_invalid_argument_over_an_http_bridge(
    rpc: str, declared: Signature | None, version: str
) -> None:
    _, model = bridge("oip", declared=declared)
    fields: dict[str, Any] = {"name": "m", "version": version}
    if rpc == "ModelInfer":
        inputs = [{"name": "x", "shape": [3], "datatype": "FP32"}]
        fields = {"model_name": "m", "model_version": version, "inputs": inputs}
        fields["raw_input_contents"] = [VALUES.tobytes()]
    message = MESSAGES[f"inference.{rpc}Request"](**fields).SerializeToString()
    handler = serving({"m": model}, "oip", transport="grpc").handlers["grpc"]
    answer = await handler.serve(GrpcRequest(f"/inference.GRPCInferenceService/{rpc}", message))
    assert (answer.code, "version should be an integral value > 0" in answer.details) == (3, True), answer
