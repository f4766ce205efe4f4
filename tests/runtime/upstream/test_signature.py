"""What requests to a model behind an upstream are held against: what its server tells, as far as that goes.

The facts are Triton's (metadata without optional inputs, which its configuration has; a batch dimension before
shape tensors), those of graphpipe-tf (every tensor of the graph is an input and an output) and of servers that
tell no more than the protocol asks for.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import orjson
import pytest

from interlingua.protocols import graphpipe, oip
from interlingua.protocols.graphpipe.metadata import Description, Port, encode_metadata
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import HttpCall, HttpReply
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    RequestedOutput,
    ServerMetadata,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router
from interlingua.translator.serving.routing.conditions import Conditions
from interlingua.translator.serving.routing.names import Names
from interlingua.translator.serving.routing.route import Route
from interlingua.translator.serving.routing.split import Split
from tests.loopback import GrpcLoopback, HttpLoopback, behind, echoing, serving

FP32, INT32 = Datatype.FP32, Datatype.INT32


def spec(name: str, *shape: int, datatype: str = "FP32") -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape}


def tensor(name: str, *shape: int, dtype: Any = np.float32) -> Tensor:
    return Tensor.from_numpy(name, np.ones(shape, dtype))


class Server:
    """An ``HttpClient`` of a server with one model, which answers with the output ``x``. ``asked`` are the last
    segments of the paths that it was asked for."""

    def __init__(self, inputs: list[Any], config: dict[str, Any] | None = None) -> None:
        self.inputs = inputs
        self.outputs = [spec("x", -1)]
        self.config = config
        self.down = ""
        self.asked: list[str] = []

    async def send(self, request: HttpCall) -> HttpReply:
        what = request.path.rsplit("/", 1)[-1]
        self.asked.append(what)
        await asyncio.sleep(0)
        if self.down == what:
            return HttpReply(503, {}, b'{"error":"later"}')
        if what == "there":
            told: Any = {"name": "there", "inputs": self.inputs, "outputs": self.outputs}
        elif what == "config":
            if self.config is None:
                return HttpReply(404, {}, b'{"error":"Not Found"}')
            told = self.config
        else:
            told = {"model_name": "there", "outputs": [{**spec("x", 1), "data": [0.5]}]}
        return HttpReply(200, {}, orjson.dumps(told))

    async def close(self) -> None:
        """Nothing is open."""

    @property
    def inferred(self) -> int:
        return self.asked.count("infer")


def model(server: Any, **options: Any) -> UpstreamModel:
    upstream = Upstream("upstream", DIALECTS["oip"].bindings["http"].calls, [server], 5.0)
    return UpstreamModel("ours", upstream, "there", **options)


async def refusal(target: UpstreamModel, *inputs: Tensor, outputs: tuple[str, ...] = ()) -> str:
    """Why a request is refused, by nobody but us; empty for one that is answered."""
    asked = tuple(RequestedOutput(name) for name in outputs) or None
    try:
        await target.infer(InferRequest("ours", inputs, asked))
    except InferenceError as error:
        if (error.code, error.origin) != (ErrorCode.INVALID_TENSOR, ""):
            raise
        return error.message
    return ""


# --- what a server tells


@pytest.mark.parametrize(
    ("config", "missing", "refused"),
    [
        ({"input": [{"name": "a"}, {"name": "b", "optional": True}]}, "b", False),
        ({"input": [{"name": "a"}, {"name": "b", "optional": True}]}, "a", True),
        ({"input": [{"name": "a"}, {"name": "b"}]}, "b", True),
        # who tells no configuration, or one without inputs, may have optional ones
        (None, "b", False),
        ({}, "a", False),
    ],
)
async def test_an_input_is_optional_unless_its_configuration_says_otherwise(
    config: dict[str, Any] | None, missing: str, refused: bool
) -> None:
    server = Server([spec("a", -1), spec("b", -1)], config)
    given = [tensor(name, 1) for name in "ab" if name != missing]
    told = await refusal(model(server), *given)
    assert bool(told) is refused and server.inferred == (not refused)
    assert not told or f"missing required input(s) ['{missing}']" in told


async def test_a_shape_tensor_has_no_batch() -> None:
    inputs = [spec("a", -1, 2), spec("sizes", -1, 2, datatype="INT32")]
    config = {
        "max_batch_size": 4,
        "input": [{"name": "a"}, {"name": "sizes", "is_shape_tensor": True}],
    }
    server = Server(inputs, config)
    server.outputs = [spec("x", -1, 1)]
    target = model(server)
    sizes = tensor("sizes", 2, dtype=np.int32)
    assert not await refusal(target, tensor("a", 3, 2), sizes)
    assert not await refusal(target, sizes, tensor("a", 3, 2))
    assert "batch-size must be <= 4" in await refusal(target, tensor("a", 5, 2), sizes)


async def test_requests_of_a_ragged_batch_have_their_own_lengths() -> None:
    inputs = [spec("a", -1, -1), spec("b", -1, -1)]
    config = {
        "max_batch_size": 4,
        "input": [{"name": "a", "allow_ragged_batch": True}, {"name": "b", "allow_ragged_batch": True}],
    }
    server = Server(inputs, config)
    server.outputs = [spec("x", -1, 1)]
    assert not await refusal(model(server), tensor("a", 1, 7), tensor("b", 1, 3))


async def test_metadata_without_inputs_say_nothing_of_them() -> None:
    server = Server([])
    target = model(server)
    assert not await refusal(target, tensor("whatever", 3, 4))
    assert "unexpected inference output 'q'" in await refusal(target, tensor("a", 1), outputs=("q",))


async def test_metadata_without_outputs_say_nothing_of_them() -> None:
    server = Server([spec("a", -1)])
    server.outputs = []
    assert not await refusal(model(server), tensor("a", 1), outputs=("x",))


@pytest.mark.parametrize(("outputs", "code"), [([], "INVALID_TENSOR"), (["x", "y"], "BAD_UPSTREAM")])
async def test_an_output_that_is_not_answered(outputs: list[str], code: str) -> None:
    """It is the caller's mistake unless the model is known to have it: MLServer ignores a name it does not
    know."""
    server = Server([spec("a", -1)])
    server.outputs = [spec(name, -1) for name in outputs]
    with pytest.raises(InferenceError, match="answered without output 'y' of model 'ours'") as caught:
        await model(server).infer(InferRequest("ours", (tensor("a", 1),), (RequestedOutput("y"),)))
    assert caught.value.code is ErrorCode[code]


async def test_a_shape_without_dimensions_is_unknown() -> None:
    server = Server([spec("a")])
    assert not await refusal(model(server), tensor("a", 3, 4))


@pytest.mark.parametrize("declared", [False, True])
async def test_a_datatype_that_travels_as_another_is_that_one(declared: bool) -> None:
    """GraphPipe has no BOOL: to a server of it a BOOL is a UINT8 of the same value."""
    stated = Signature((TensorSpec("a", Datatype.UINT8, (-1,)),), (TensorSpec("x", Datatype.UINT8, (-1,)),))
    there = serving(echoing({"there": stated}), "graphpipe")
    target = behind(there, "graphpipe", "http", "there", declared=stated if declared else None)
    answer = await target.infer(InferRequest("there", (Tensor.from_numpy("a", np.array([True, False])),)))
    assert answer.outputs[0].numpy().tolist() == [1, 0]
    assert "data-type is 'INT8'" in await refusal(target, Tensor.from_numpy("a", np.ones(1, np.int8)))


class Described:
    """An ``HttpClient`` of a GraphPipe server that describes its model so, and answers with ones."""

    def __init__(self, server: str, inputs: tuple[Port, ...], outputs: tuple[Port, ...]) -> None:
        self.metadata = encode_metadata(Description("m", "1", server, "", inputs, outputs))
        self.outputs = [tensor(port.name, 1) for port in outputs]

    async def send(self, request: HttpCall) -> HttpReply:
        asked = graphpipe.codec.open_request(b"".join(request.parts))
        if asked.table is None:
            return HttpReply(200, {}, self.metadata)
        parts = graphpipe.codec.encode_response(None, self.outputs)
        return HttpReply(200, {}, b"".join(parts))

    async def close(self) -> None:
        """Nothing is open."""

    def model(self) -> UpstreamModel:
        return UpstreamModel(
            "ours", Upstream("upstream", DIALECTS["graphpipe"].bindings["http"].calls, [self], 5.0), ""
        )


async def test_an_input_of_a_graph_that_is_an_output_too_is_optional() -> None:
    """graphpipe-tf lists every tensor of its graph as both; what has to be given stands nowhere."""
    ports = tuple(Port(name, "", (-1,), 10) for name in ("in:0", "hidden:0", "x"))
    target = Described("graphpipe-tf", ports, ports[1:]).model()
    assert not await refusal(target, tensor("in:0", 1), outputs=("x",))
    assert "missing required input(s) ['in:0']" in await refusal(target, tensor("hidden:0", 1))
    inputs = (await target.signature()).inputs
    assert [each.name for each in inputs if each.optional] == ["hidden:0", "x"]


async def test_of_the_simple_go_api_the_names_alone_are_right() -> None:
    """It reports Int64 for everything, and the rank in place of the shape."""
    target = Described("", (Port("input0", "", (2,), 8),), (Port("output0", "", (1,), 8),)).model()
    assert not await refusal(target, tensor("input0", 3, 4))
    assert "unexpected inference input 'q'" in await refusal(target, tensor("q", 3, 4))
    assert "missing required input" in await refusal(target)


async def test_the_first_dimension_of_a_graphpipe_model_is_its_batch() -> None:
    target = Described("graphpipe-onnx", (Port("a", "", (1, 3), 10),), (Port("x", "", (1,), 10),)).model()
    assert not await refusal(target, tensor("a", 7, 3))
    for wrong in (tensor("a", 1, 4), tensor("a", 3), tensor("a")):
        assert "unexpected shape for input 'a'" in await refusal(target, wrong)
    assert "data-type is 'FP64'" in await refusal(target, tensor("a", 1, 3, dtype=np.float64))


# --- what is declared


async def test_what_is_declared_counts_and_not_what_the_server_says() -> None:
    server = Server([spec("a", -1)], {})
    inputs = (TensorSpec("b", FP32, (2,)), TensorSpec("c", FP32, (2,), optional=True))
    target = model(server, declared=Signature(inputs, (TensorSpec("x", FP32, (-1,)),)))
    assert not await refusal(target, tensor("b", 2))
    assert "missing required input(s) ['b']" in await refusal(target, tensor("c", 2))
    assert "unexpected inference input 'a'" in await refusal(target, tensor("b", 2), tensor("a", 2))
    assert server.asked == ["infer"]


async def test_the_server_judges_where_its_signature_is_not_believed() -> None:
    server = Server([spec("a", 7)], {})
    assert not await refusal(model(server, strict_signature=False), tensor("z", 2))
    assert server.inferred == 1


async def test_a_tensor_under_the_upstreams_name_is_refused_with_the_clients_one() -> None:
    target = model(Server([spec("a", -1)], {}), inputs={"mine": "a"}, outputs={"yours": "x"})
    assert not await refusal(target, tensor("mine", 1), outputs=("yours",))
    assert "it is called 'mine' here" in await refusal(target, tensor("a", 1))
    assert "it is called 'yours' here" in await refusal(target, tensor("mine", 1), outputs=("x",))


# --- what changes


async def test_the_signature_of_a_reloaded_model_is_read_again() -> None:
    server = Server([spec("a", 2)], {})
    target = model(server)
    assert not await refusal(target, tensor("a", 2))
    server.inputs = [spec("a", 3), spec("b", -1)]
    assert not await refusal(target, tensor("a", 3), tensor("b", 1))
    assert (await target.signature()).input_names.keys() == {"a", "b"}
    assert server.asked.count("there") == 2


async def test_requests_that_never_fit_share_a_renewal() -> None:
    server = Server([spec("a", 2)], {})
    target = model(server)
    told = await asyncio.gather(*(refusal(target, tensor("a", 3)) for _ in range(20)))
    assert all("unexpected shape" in each for each in told)
    assert server.asked.count("there") == 2, "once to know it, once to see whether it has changed"
    assert not server.inferred


async def test_those_who_come_at_once_after_a_reload_are_all_answered() -> None:
    server = Server([spec("a", 2)], {})
    target = model(server)
    await target.signature()
    server.inputs = [spec("a", 3)]
    told = await asyncio.gather(*(refusal(target, tensor("a", 3)) for _ in range(20)))
    assert not any(told) and server.inferred == 20
    assert server.asked.count("there") == 2


@pytest.mark.parametrize("down", ["there", "config"])
async def test_what_is_known_remains_while_the_server_cannot_answer(down: str) -> None:
    server = Server([spec("a", 2)], {})
    target = model(server)
    await target.signature()
    server.down = down
    assert "unexpected shape" in await refusal(target, tensor("a", 3))
    assert not await refusal(target, tensor("a", 2)), "good requests do not wait for a signature"


@pytest.mark.parametrize("renamed", [False, True])
async def test_a_request_that_its_codec_refuses_is_read_again(renamed: bool) -> None:
    """Version 1 is cut by the signature: what does not fit that is refused before any model is asked."""
    server = Server([spec("a", 2)], {})
    server.outputs = [spec("x", 1)]
    names = Names({"mine": "a"}) if renamed else Names()
    service = Service(
        Router({"ours": model(server)}, [Route(Split.only("ours"), Conditions("m"), names)]),
        ServerMetadata("interlingua", "0"),
    )
    client = HttpLoopback(Pipeline(service, "loopback", [*DIALECTS["trtis"].bindings.values()], ""))

    async def ask(width: int) -> int:
        given = "mine" if renamed else "a"
        header = f'batch_size: 1 input {{ name: "{given}" dims: {width} }} output {{ name: "x" }}'
        request = HttpCall(
            "POST", "/api/infer/m", headers={"NV-InferRequest": header}, parts=[bytes(4 * width)]
        )
        return (await client.send(request)).status

    assert (await ask(2), await ask(3)) == (200, 400)
    assert server.asked.count("there") == 2
    (known,) = (await service.router.models["ours"].signature()).inputs  # type: ignore[attr-defined]
    assert known.shape == (2,)


async def test_a_request_that_its_codec_refused_fits_what_was_loaded_since() -> None:
    server = Server([spec("a", 2)], {})
    target = model(server)
    client = HttpLoopback(serving({"ours": target}, "graphpipe"))

    async def ask(name: str) -> int:
        parts = graphpipe.codec.encode_request(InferRequest("", (tensor(name, 2),)))
        return (await client.send(HttpCall("POST", "/graphpipe/ours", parts=parts))).status

    assert await ask("a") == 200
    server.inputs = [spec("b", 2)]
    assert (await ask("b"), await ask("a")) == (200, 400)
    assert server.inferred == 2


# --- statistics


async def test_a_refusal_is_no_reason_to_forget_a_signature() -> None:
    server = Server([spec("a", 2)], {})
    target = model(server)
    for _ in range(5):
        assert await refusal(target, tensor("a", 3))
        assert not await refusal(target, tensor("a", 2))
    assert server.asked.count("there") == 6, "once to know it, and once for each that does not fit"


async def test_failures_of_a_model_that_never_answered_are_its_own() -> None:
    server = Server([spec("a", 2)], {})
    server.down = "there"
    target = model(server)
    for _ in range(3):
        with pytest.raises(InferenceError, match="later"):
            await target.infer(InferRequest("ours", (tensor("a", 2),)))
    with pytest.raises(InferenceError, match="later"):
        async for _ in target.stream(InferRequest("ours", (tensor("a", 2),))):
            pass
    (version,) = target.statistics.values()
    assert version.failures == {ErrorCode.UNAVAILABLE: 4}
    assert (version.inference_count, version.by_batch_size[1].failed.count) == (0, 4)


@pytest.mark.parametrize("transport", ["http", "grpc"])
async def test_what_cannot_be_read_for_want_of_a_signature_fails_as_that_models(transport: str) -> None:
    """Of a message that passes unread too."""

    class Down:
        async def send(self, request: Any) -> Any:
            raise InferenceError(ErrorCode.UNAVAILABLE, "refused")

        async def close(self) -> None:
            """Nothing is open."""

    upstream = Upstream("upstream", DIALECTS["oip"].bindings[transport].calls, [Down()], 5.0)
    target = UpstreamModel("ours", upstream, "there")
    pipeline = serving({"ours": target}, "oip")
    given = (tensor("a", 1),)
    for _ in range(3):
        if transport == "http":
            headers, parts = oip.codec_http.encode_request(InferRequest("ours", given), binary=False)
            request = HttpCall("POST", "/v2/models/ours/infer", headers=dict(headers), parts=parts)
            assert (await HttpLoopback(pipeline).send(request)).status == 503
        else:
            call, _ = oip.codec_grpc.encode_call(InferRequest("ours", given), None)
            assert (await GrpcLoopback(pipeline).send(call)).code == 14
    (version,) = target.statistics.values()
    assert version.failures == {ErrorCode.UNAVAILABLE: 3}
