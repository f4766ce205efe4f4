"""A model behind a server of version 1, which is ours: over both transports, without a socket."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from interlingua.protocols.registry import DIALECTS
from interlingua.runtime.repository.files import find_models, load_models
from interlingua.runtime.target import Target
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    Operation,
    Readiness,
    RequestedOutput,
    Sequence,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.schemas.oip import MESSAGES
from tests.loopback import GrpcLoopback, HttpLoopback, behind, echoing, serving
from tests.strategies import signature_of

BATCHED = Signature(
    (TensorSpec("a", Datatype.FP32, (-1, 3)), TensorSpec("s", Datatype.BYTES, (-1,))),
    (TensorSpec("x", Datatype.FP32, (-1, 3), labels=("ant", "bee")), TensorSpec("t", Datatype.BYTES, (-1,))),
    8,
)
SCALAR = Signature((TensorSpec("a", Datatype.BOOL, ()),), (TensorSpec("x", Datatype.BOOL, ()),))
SERVER = serving(echoing({"batched": BATCHED, "scalar": SCALAR}), "trtis")

A = Tensor.from_numpy("a", np.array([[1, 3, 2], [0.5, -1, 0]], np.float32))
S = Tensor.from_numpy("s", np.array([b"\xff", b""], object))

transports = pytest.mark.parametrize("transport", ["http", "grpc"])


def requested(target: UpstreamModel) -> list[str]:
    client = target.upstream.pool.members[0].client
    assert isinstance(client, HttpLoopback | GrpcLoopback)
    return client.asked


@transports
async def test_its_signature_is_requested_once(transport: str) -> None:
    target = behind(SERVER, "trtis", transport, "batched")
    signature = await target.signature()
    assert signature.max_batch_size == 8
    assert [(spec.name, spec.datatype, spec.shape) for spec in (*signature.inputs, *signature.outputs)] == [
        ("a", Datatype.FP32, (-1, 3)),
        ("s", Datatype.BYTES, (-1,)),
        ("x", Datatype.FP32, (-1, 3)),
        ("t", Datatype.BYTES, (-1,)),
    ]
    await target.infer(InferRequest("batched", (A, S)))
    await target.infer(InferRequest("batched", (A, S)))
    infer = "/api/infer/batched" if transport == "http" else "/nvidia.inferenceserver.GRPCService/Infer"
    assert len(requested(target)) == 3 and requested(target)[1:] == [infer, infer]


@transports
@pytest.mark.parametrize("identity", ["", "7", "seven", "007"])
async def test_all_outputs_and_any_id_come_back(transport: str, identity: str) -> None:
    request = InferRequest("ours", (A, S), id=identity)
    answer = await behind(SERVER, "trtis", transport, "batched").infer(request)
    assert answer.outputs == (A.renamed("x"), S.renamed("t"))
    assert (answer.id, answer.version, answer.model) == (identity, "1", "batched")


@transports
async def test_classes_are_requested_as_the_raw_output(transport: str) -> None:
    request = InferRequest("ours", (A, S), (RequestedOutput("x", classification=2),))
    answer = await behind(SERVER, "trtis", transport, "batched").infer(request)
    assert answer.outputs == (A.renamed("x"),)


@transports
async def test_no_outputs(transport: str) -> None:
    request = InferRequest("ours", (A, S), ())
    assert (await behind(SERVER, "trtis", transport, "batched").infer(request)).outputs == ()


@transports
async def test_renamed(transport: str) -> None:
    names = {"inputs": {"mine": "a"}, "outputs": {"yours": "x"}}
    target = behind(SERVER, "trtis", transport, "batched", **names)
    request = InferRequest("ours", (A.renamed("mine"), S), (RequestedOutput("yours"),))
    assert (await target.infer(request)).outputs == (A.renamed("yours"),)


@transports
async def test_a_scalar(transport: str) -> None:
    scalar = Tensor.from_numpy("a", np.array(True))
    target = behind(SERVER, "trtis", transport, "scalar")
    assert (await target.signature()).inputs[0].shape == ()
    assert (await target.infer(InferRequest("ours", (scalar,)))).outputs == (scalar.renamed("x"),)


CONFIG = """
backend: "identity"
max_batch_size: 8
input { name: "image" data_type: TYPE_UINT8 format: FORMAT_NCHW dims: [ 3, -1, -1 ] }
output { name: "OUTPUT0" data_type: TYPE_UINT8 dims: [ 3, -1, -1 ] }
dynamic_batching { preferred_batch_size: 4 }
"""


@transports
async def test_the_configuration_is_the_upstreams_own(transport: str, tmp_path: Path) -> None:
    """Clients for images look for the format of their input."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(CONFIG)
    there = serving(dict(load_models(find_models(tmp_path)).models), "trtis")
    target = behind(there, "trtis", transport, "m", inputs={"picture": "image"})
    config = MESSAGES["inference.ModelConfig"].FromString((await target.status()).config)
    assert (config.name, config.max_batch_size) == (target.name, 8)
    assert list(config.dynamic_batching.preferred_batch_size) == [4]
    (given,) = config.input
    assert (given.name, given.Format.Name(given.format)) == ("picture", "FORMAT_NCHW")
    assert list(given.dims) == [3, -1, -1]
    assert len(set(requested(target))) == 1

    shape = (-1, 3, 224, 224)
    stated = Signature(
        (TensorSpec("picture", Datatype.UINT8, shape),), (TensorSpec("OUTPUT0", Datatype.UINT8, shape),), 4
    )
    declared = behind(there, "trtis", transport, "m", inputs={"picture": "image"}, declared=stated)
    config = MESSAGES["inference.ModelConfig"].FromString((await declared.status()).config)
    (given,) = config.input
    assert (config.max_batch_size, list(given.dims)) == (4, [3, 224, 224])
    assert given.Format.Name(given.format) == "FORMAT_NCHW"


@transports
async def test_metadata_and_readiness(transport: str) -> None:
    target = behind(SERVER, "trtis", transport, "batched")
    assert (await target.metadata()).versions == ("1",)
    assert await target.ready() == await target.ready("1") == Readiness(True)
    assert not (await target.ready("4")).ready
    lost = behind(SERVER, "trtis", transport, "lost")
    said = await lost.ready()
    assert (said.ready, "'lost'" in said.reason) == (False, True)


@transports
@pytest.mark.parametrize(
    ("model", "version", "code"),
    [
        ("lost", "", ErrorCode.NOT_FOUND),
        ("batched", "4", ErrorCode.NOT_FOUND),
        ("batched", "v1.2", ErrorCode.UNREPRESENTABLE),
    ],
)
async def test_what_is_not_there(transport: str, model: str, version: str, code: ErrorCode) -> None:
    target = behind(SERVER, "trtis", transport, model)
    with pytest.raises(InferenceError) as caught:
        await target.infer(InferRequest("ours", (A, S), version=version))
    assert (caught.value.code, caught.value.origin) == (code, "there")


@transports
async def test_its_own_words(transport: str) -> None:
    target = behind(SERVER, "trtis", transport, "batched", strict_signature=False)
    with pytest.raises(InferenceError) as caught:
        await target.infer(InferRequest("ours", (A,)))
    assert caught.value.code is ErrorCode.INVALID_TENSOR
    assert caught.value.message == "expected 2 inputs but got 1 inputs for model 'batched'"


async def test_a_sequence_stays_where_it_is() -> None:
    clients = [HttpLoopback(SERVER), HttpLoopback(SERVER)]
    target = UpstreamModel(
        "m", Upstream("there", DIALECTS["trtis"].bindings["http"].calls, clients, 5.0), "batched"
    )
    await target.signature()
    for client in clients:
        client.asked.clear()
    for _ in range(4):
        await target.infer(InferRequest("m", (A, S), sequence=Sequence(1)))
    assert sorted(len(client.asked) for client in clients) == [0, 4]


@pytest.mark.parametrize("dialect", ["oip", "trtis"])
@transports
async def test_through_two_of_us(dialect: str, transport: str) -> None:
    """A client of ours, us, version 1 between, and us again: every datatype that both carry."""
    datatypes = sorted(DIALECTS["trtis"].bindings["http"].capability.exact, key=repr)
    inputs = tuple(sample(datatype) for datatype in datatypes)
    signature = signature_of(inputs, [tensor.renamed(f"out_{tensor.name}") for tensor in inputs], 4)
    inner: Target = behind(serving(echoing({"m": signature}), "trtis"), "trtis", transport, "m")
    outer = behind(serving({"m": inner}, dialect), dialect, transport, "m")
    answer = await outer.infer(InferRequest("m", inputs))
    assert answer.outputs == tuple(tensor.renamed(f"out_{tensor.name}") for tensor in inputs)


def sample(datatype: Datatype) -> Tensor:
    """A batch of two elements; their bytes are no text, and no number that is zero."""
    data = {Datatype.BYTES: b"\1\0\0\0\xff\0\0\0\0", Datatype.BOOL: b"\1\0"}
    return Tensor.checked(
        datatype.value, datatype, (2, 1), data.get(datatype, bytes(range(1, 2 * datatype.itemsize + 1)))
    )


async def test_models_are_listed_and_controlled() -> None:
    upstream = Upstream("there", DIALECTS["trtis"].bindings["grpc"].calls, [GrpcLoopback(SERVER)], 5.0)
    index = await upstream.call(Operation.REPOSITORY_INDEX)
    assert {model.name for model in index} == {"batched", "scalar"}
    server = await upstream.call(Operation.SERVER_METADATA)
    assert server.name == "inference:0"
    assert (await upstream.call(Operation.LIVE)).ready
    assert (await upstream.call(Operation.READY)).ready
