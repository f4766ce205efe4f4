"""What is asked of an upstream, and of which of its URLs. The answers are a real Triton's, recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import orjson
import pytest

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest, HttpCall, HttpReply
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    ModelControl,
    RequestedOutput,
    Sequence,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.schemas.oip import MESSAGES
from tests.waiting import until

GOLDEN = Path(__file__).parents[2] / "golden" / "oip" / "triton_http.json"
EXCHANGES = {exchange["name"]: exchange for exchange in orjson.loads(GOLDEN.read_bytes())}
CONFIG = EXCHANGES["config"]["body"]["text"].encode()

INPUTS = tuple(Tensor.checked(name, Datatype.INT32, (1, 16), bytes(64)) for name in ("INPUT0", "INPUT1"))


def described(shape: list[int]) -> bytes:
    tensor = {"datatype": "INT32", "shape": shape}
    return orjson.dumps(
        {
            "name": "simple",
            "versions": ["1"],
            "platform": "",
            "inputs": [{"name": "INPUT0", **tensor}, {"name": "INPUT1", **tensor}],
            "outputs": [{"name": "OUTPUT0", **tensor}, {"name": "OUTPUT1", **tensor}],
        }
    )


class Recorded:
    """An ``HttpClient`` whose server answers by the last segment of the path."""

    def __init__(self, **replies: tuple[int, bytes]) -> None:
        self.replies = replies
        self.seen: list[HttpCall] = []

    async def send(self, request: HttpCall) -> HttpReply:
        self.seen.append(request)
        status, body = self.replies.get(request.path.rsplit("/", 1)[-1], (404, b""))
        return HttpReply(status, {}, body)

    async def close(self) -> None:
        """Nothing is open."""

    @property
    def asked(self) -> list[str]:
        return [request.path for request in self.seen]


def model(*clients: Any, dialect: str = "oip") -> UpstreamModel:
    return UpstreamModel(
        "ours", Upstream("there", DIALECTS[dialect].bindings["http"].calls, clients, 5.0), "simple"
    )


METADATA = (200, described([-1, 16]))
ANSWER = orjson.dumps(
    {
        "model_name": "simple",
        "outputs": [
            {"name": name, "datatype": "INT32", "shape": [1, 16], "data": [0] * 16}
            for name in ("OUTPUT0", "OUTPUT1")
        ],
    }
)


async def test_the_limit_of_the_batch_comes_from_the_configuration() -> None:
    client = Recorded(simple=METADATA, config=(200, CONFIG))
    signature = await model(client).signature()
    assert signature.max_batch_size == 8
    assert signature.inputs[0].shape == (-1, 16)
    assert client.asked == ["/v2/models/simple", "/v2/models/simple/config"]


async def test_a_model_without_a_free_first_dimension_has_no_batch() -> None:
    client = Recorded(simple=(200, described([16])), config=(200, CONFIG))
    assert (await model(client).signature()).max_batch_size == 0
    # the configuration is asked for all the same: it tells which inputs are optional
    assert client.asked == ["/v2/models/simple", "/v2/models/simple/config"]


@pytest.mark.parametrize(
    "reply", [(404, b'{"error": "Not Found"}'), (405, b""), (501, b""), (500, b""), (200, b"no JSON")]
)
async def test_a_server_that_has_no_configuration(reply: tuple[int, bytes]) -> None:
    assert (await model(Recorded(simple=METADATA, config=reply)).signature()).max_batch_size == 0


async def test_an_unavailable_server_is_queried_again() -> None:
    client = Recorded(simple=METADATA, config=(503, b'{"error": "later"}'))
    target = model(client)
    with pytest.raises(InferenceError, match="later") as caught:
        await target.signature()
    assert caught.value.code is ErrorCode.UNAVAILABLE
    client.replies["config"] = (200, CONFIG)
    assert (await target.signature()).max_batch_size == 8


async def test_versions_that_clients_make_up_are_not_kept_for_ever() -> None:
    class AnyVersion(Recorded):
        async def send(self, request: HttpCall) -> HttpReply:
            self.seen.append(request)
            return HttpReply(200, {}, described([16]))

    client = AnyVersion()
    target = model(client)
    for version in ("1", *map(str, range(1000)), "1"):
        await target.signature(version)
        await target.signature(version)
    assert client.asked.count("/v2/models/simple/versions/1") == 2
    assert client.asked.count("/v2/models/simple/versions/999") == 1


async def test_classes_are_never_requested_of_an_upstream() -> None:
    client = Recorded(simple=METADATA, config=(200, CONFIG), infer=(200, ANSWER))
    outputs = (RequestedOutput("OUTPUT0", classification=3), RequestedOutput("OUTPUT1"))
    answer = await model(client).infer(InferRequest("ours", INPUTS, outputs, id="mine"))
    assert [tensor.name for tensor in answer.outputs] == ["OUTPUT0", "OUTPUT1"]
    assert (answer.model, answer.id) == ("ours", "mine")
    head = orjson.loads(client.seen[-1].parts[0])
    assert [output["name"] for output in head["outputs"]] == ["OUTPUT0", "OUTPUT1"]
    assert not any("classification" in output.get("parameters", {}) for output in head["outputs"])


async def test_a_sequence_stays_on_one_url() -> None:
    clients = [Recorded(simple=METADATA, config=(404, b""), infer=(200, ANSWER)) for _ in range(3)]
    target = model(*clients)
    for _ in range(4):
        for identity in range(1, 13):
            await target.infer(InferRequest("ours", INPUTS, sequence=Sequence(identity)))
    homes: dict[int, set[int]] = {}
    for place, client in enumerate(clients):
        for request in client.seen:
            if request.path.endswith("/infer"):
                identity = orjson.loads(request.parts[0])["parameters"]["sequence_id"]
                homes.setdefault(identity, set()).add(place)
    assert len(homes) == 12 and all(len(places) == 1 for places in homes.values())
    assert len(set.union(*homes.values())) > 1


class Unfair(Recorded):
    """What is sent first is answered last, as far as requests are sent at once."""

    def __init__(self, **replies: tuple[int, bytes]) -> None:
        super().__init__(**replies)
        self.under_way: list[asyncio.Event] = []
        self.answered: list[int] = []

    async def send(self, request: HttpCall) -> HttpReply:
        if not request.path.endswith("/infer"):
            await asyncio.sleep(0)
            return await super().send(request)
        mine = asyncio.Event()
        self.under_way.append(mine)
        # all who can be on their way are
        for _ in range(10):
            await asyncio.sleep(0)
        if self.under_way[-1] is not mine:
            await mine.wait()
        self.under_way.remove(mine)
        if self.under_way:
            self.under_way[-1].set()
        self.answered.append(int(orjson.loads(request.parts[0])["id"]))
        return await super().send(request)


@pytest.mark.parametrize("way", ["infer", "stream"])
async def test_requests_of_a_sequence_do_not_overtake_each_other(way: str) -> None:
    async def asked(target: UpstreamModel, number: int, sequence: Sequence | None) -> None:
        request = InferRequest("ours", INPUTS, id=str(number), sequence=sequence)
        if way == "infer":
            await target.infer(request)
        else:
            assert [answer.id async for answer in target.stream(request)] == [str(number)]

    for sequence, order in ((Sequence("s"), [0, 1, 2, 3]), (None, [3, 2, 1, 0])):
        client = Unfair(simple=METADATA, config=(200, CONFIG), infer=(200, ANSWER))
        target = model(client)
        await asyncio.gather(*(asked(target, number, sequence) for number in range(4)))
        assert client.answered == order


async def test_an_answer_that_is_not_taken_yet_does_not_keep_its_sequence_waiting() -> None:
    target = model(Recorded(simple=METADATA, config=(200, CONFIG), infer=(200, ANSWER)))
    first = target.stream(InferRequest("ours", INPUTS, id="1", sequence=Sequence("s")))
    assert (await anext(first)).final
    async with asyncio.timeout(30):
        async for response in target.stream(InferRequest("ours", INPUTS, id="2", sequence=Sequence("s"))):
            assert response.final
    await first.aclose()


class Generating(Recorded):
    """With an endpoint for events too."""

    async def stream(self, request: HttpCall) -> AsyncIterator[HttpReply]:
        self.seen.append(request)
        for piece in (b'data: {"model_name":"simple","OUTPUT0":[', b"1],", b'"OUTPUT1":2}\n\n', b""):
            yield HttpReply(200, {}, piece)


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ((200, b'{"model_transaction_policy":{"decoupled":true}}'), "generate_stream"),
        ((200, b'{"model_transaction_policy":{"decoupled":false}}'), "infer"),
        ((404, b""), "infer"),
    ],
)
async def test_only_decoupled_models_are_called_as_streams(config: tuple[int, bytes], path: str) -> None:
    client = Generating(simple=(200, described([1])), config=config, infer=(200, ANSWER))
    target = model(client)
    inputs = tuple(Tensor.checked(name, Datatype.INT32, (1,), bytes(4)) for name in ("INPUT0", "INPUT1"))
    for _ in range(2):
        answers = [answer async for answer in target.stream(InferRequest("ours", inputs, id="mine"))]
        assert [tensor.name for tensor in answers[0].outputs] == ["OUTPUT0", "OUTPUT1"]
        assert [answer.final for answer in answers] == ([False, True] if path != "infer" else [True])
        assert {(answer.model, answer.id) for answer in answers} == {("ours", "mine")}
    assert sum(each.endswith("/config") for each in client.asked) == 1
    assert sum(each.endswith(f"/{path}") for each in client.asked) == 2


async def test_an_output_by_the_upstreams_own_name_is_the_callers_mistake() -> None:
    client = Recorded(simple=METADATA, config=(200, CONFIG), infer=(200, ANSWER))
    upstream = Upstream("there", DIALECTS["oip"].bindings["http"].calls, [client], 5.0)
    target = UpstreamModel("ours", upstream, "simple", outputs={"sum": "OUTPUT0"})
    assert (await target.infer(InferRequest("ours", INPUTS, (RequestedOutput("sum"),)))).outputs
    with pytest.raises(InferenceError, match="it is called 'sum' here") as caught:
        await target.infer(InferRequest("ours", INPUTS, (RequestedOutput("OUTPUT0"),)))
    assert caught.value.code is ErrorCode.INVALID_TENSOR


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("Request for unknown model: 'simple' is not found", ErrorCode.NOT_FOUND),
        ("[request id: 1] expected 2 inputs but got 1 inputs for model 'simple'", None),
    ],
)
async def test_a_stream_whose_model_is_gone_has_not_begun(words: str, code: ErrorCode | None) -> None:
    """In a stream Triton's errors have no code; a route may go elsewhere where no model has been asked."""

    class Gone:
        async def stream(self, request: GrpcRequest) -> AsyncIterator[GrpcAnswer]:
            told: Any = MESSAGES["inference.ModelStreamInferResponse"](error_message=words)
            yield GrpcAnswer(told.SerializeToString())

        async def close(self) -> None:
            """Nothing is open."""

    upstream = Upstream("there", DIALECTS["oip"].bindings["grpc"].calls, [Gone()], 5.0)
    specs = [
        tuple(TensorSpec(f"{side}{n}", Datatype.INT32, (1, 16)) for n in (0, 1))
        for side in ("INPUT", "OUTPUT")
    ]
    target = UpstreamModel("ours", upstream, "simple", declared=Signature(*specs))
    answers = target.stream(InferRequest("ours", INPUTS))
    if code is None:
        assert [answer.error is not None async for answer in answers] == [True, False]
        return
    with pytest.raises(InferenceError, match="unknown model") as caught:
        await anext(answers)
    assert caught.value.code is code


async def test_the_only_answer_of_a_decoupled_model_behind_an_upstream() -> None:
    """Triton refuses one answer of such a model; who wants its only one gets that out of a stream."""

    class Decoupled:
        def __init__(self) -> None:
            self.asked: list[str] = []
            self.answers = 1

        async def send(self, request: GrpcRequest) -> GrpcAnswer:
            method = request.method.rpartition("/")[2]
            self.asked.append(method)
            if method == "ModelInfer":
                said = "ModelInfer RPC doesn't support models with decoupled transaction policy"
                return GrpcAnswer(code=12, details=said)
            answer: Any = MESSAGES["inference.ModelConfigResponse"]()
            answer.config.model_transaction_policy.decoupled = True
            return GrpcAnswer(answer.SerializeToString())

        async def stream(self, request: GrpcRequest) -> AsyncIterator[GrpcAnswer]:
            self.asked.append("ModelStreamInfer")
            for number in range(self.answers):
                told: Any = MESSAGES["inference.ModelStreamInferResponse"]()
                told.infer_response.outputs.add(name="OUT", datatype="INT32", shape=[1])
                told.infer_response.raw_output_contents.append(bytes((number + 7, 0, 0, 0)))
                yield GrpcAnswer(told.SerializeToString())

        async def close(self) -> None:
            """Nothing is open."""

    server = Decoupled()
    upstream = Upstream("there", DIALECTS["oip"].bindings["grpc"].calls, [server], 5.0)
    signature = Signature(
        tuple(TensorSpec(tensor.name, Datatype.INT32, (1, 16)) for tensor in INPUTS),
        (TensorSpec("OUT", Datatype.INT32, (1,)),),
    )
    target = UpstreamModel("ours", upstream, "theirs", declared=signature)
    with pytest.raises(InferenceError, match="decoupled transaction policy"):
        await target.infer(InferRequest("ours", INPUTS))
    assert server.asked == ["ModelInfer"]
    for known in (["ModelInfer", "ModelConfig", "ModelStreamInfer"], ["ModelStreamInfer"]):
        server.asked.clear()
        answer = await target.infer(InferRequest("ours", INPUTS, id="x", answers="only"))
        assert (answer.id, answer.outputs[0].numpy().tolist(), answer.final) == ("x", [7], True)
        assert server.asked == known
    server.answers = 2
    with pytest.raises(InferenceError, match="'ours' gives more than one answer") as refused:
        await target.infer(InferRequest("ours", INPUTS, answers="only"))
    assert refused.value.code is ErrorCode.UNSUPPORTED


# --- what is counted


def counted(target: UpstreamModel) -> tuple[int, dict[ErrorCode, int]]:
    """How many requests were answered, and how many failed in which way."""
    (version,) = target.statistics.values()
    return version.inference_count, dict(version.failures)


async def test_a_caller_that_goes_away_is_counted_as_cancelled() -> None:
    class Slow(Recorded):
        async def send(self, request: HttpCall) -> HttpReply:
            if request.path.endswith("/infer"):
                self.seen.append(request)
                await asyncio.sleep(60)
            return await super().send(request)

    client = Slow(simple=(200, described([1, 16])))
    target = model(client)
    waiting = asyncio.ensure_future(target.infer(InferRequest("ours", INPUTS)))
    await until(lambda: "/v2/models/simple/infer" in client.asked)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert counted(target) == (0, {ErrorCode.CANCELLED: 1})


@pytest.mark.parametrize(
    ("path", "taken", "said"),
    [
        ("generate_stream", 1, (0, {ErrorCode.CANCELLED: 1})),
        ("generate_stream", 2, (1, {})),
        ("infer", 1, (1, {})),
    ],
)
async def test_a_stream_is_counted_once_however_it_ends(
    path: str, taken: int, said: tuple[int, dict[ErrorCode, int]]
) -> None:
    config = orjson.dumps({"model_transaction_policy": {"decoupled": path == "generate_stream"}})
    client = Generating(simple=(200, described([1])), config=(200, config), infer=(200, ANSWER))
    target = model(client)
    inputs = tuple(Tensor.checked(name, Datatype.INT32, (1,), bytes(4)) for name in ("INPUT0", "INPUT1"))
    async with aclosing(target.stream(InferRequest("ours", inputs))) as answers:
        for _ in range(taken):
            await anext(answers)
    assert counted(target) == said


async def test_no_request_overtakes_those_that_wait_for_a_signature() -> None:
    client = Recorded(simple=METADATA, config=(200, CONFIG))
    target = model(client)
    order: list[int] = []

    async def asked(number: int) -> None:
        await target.signature()
        order.append(number)

    async def newcomers() -> None:
        # one at each turn of the loop, until it is long known
        for number in range(3, 23):
            waiting.append(asyncio.ensure_future(asked(number)))
            await asyncio.sleep(0)

    waiting = [asyncio.ensure_future(asked(number)) for number in range(3)]
    await newcomers()
    await asyncio.gather(*waiting)
    assert order == list(range(23))


async def test_callers_that_need_a_signature_at_once_share_one_request() -> None:
    client = Unfair(simple=(503, b'{"error": "later"}'), config=(200, CONFIG))
    target = model(client)
    said = await asyncio.gather(*(target.signature() for _ in range(4)), return_exceptions=True)
    assert all(isinstance(error, InferenceError) and "later" in error.message for error in said)
    assert client.asked == ["/v2/models/simple"]
    client.replies["simple"] = METADATA
    # who goes away takes nothing from the others
    first, second = (asyncio.ensure_future(target.signature()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).max_batch_size == 8
    assert client.asked[1:] == ["/v2/models/simple", "/v2/models/simple/config"]


async def test_other_requests_take_turns() -> None:
    clients = [Recorded(simple=METADATA, config=(404, b""), infer=(200, ANSWER)) for _ in range(3)]
    target = model(*clients)
    await target.signature()
    for client in clients:
        client.seen.clear()
    for _ in range(6):
        await target.infer(InferRequest("ours", INPUTS))
    assert [len(client.seen) for client in clients] == [2, 2, 2]


# --- configuration and control


async def test_the_configuration_is_the_upstreams_own() -> None:
    client = Recorded(simple=METADATA, config=(200, CONFIG))
    upstream = Upstream("there", DIALECTS["oip"].bindings["http"].calls, [client], 5.0)
    renamed = UpstreamModel("ours", upstream, "simple", inputs={"a": "INPUT0"}, outputs={"sum": "OUTPUT0"})
    status = await renamed.status()
    config = MESSAGES["inference.ModelConfig"].FromString(status.config)
    assert (config.name, config.backend, config.max_batch_size) == ("ours", "python", 8)
    assert [tensor.name for tensor in config.input] == ["a", "INPUT1"]
    assert [tensor.name for tensor in config.output] == ["sum", "OUTPUT1"]


async def test_a_configuration_without_tensors_has_those_of_the_metadata() -> None:
    client = Recorded(simple=METADATA, config=(200, b'{"name":"simple","max_batch_size":8}'))
    config = MESSAGES["inference.ModelConfig"].FromString((await model(client).status()).config)
    assert config.max_batch_size == 8
    assert [(tensor.name, list(tensor.dims)) for tensor in config.output] == [
        ("OUTPUT0", [16]),
        ("OUTPUT1", [16]),
    ]


async def test_a_server_without_configurations_has_one_made_of_its_metadata() -> None:
    client = Recorded(simple=METADATA, config=(404, b'{"detail":"Not Found"}'))
    config = MESSAGES["inference.ModelConfig"].FromString((await model(client).status()).config)
    assert (config.name, config.max_batch_size) == ("ours", 0)
    assert [list(tensor.dims) for tensor in config.input] == [[-1, 16], [-1, 16]]


def controlled(client: Recorded, control: bool = True) -> ModelCatalog:
    upstream = Upstream("there", DIALECTS["oip"].bindings["http"].calls, [client], 5.0)
    target = UpstreamModel("ours", upstream, "simple", controlled=control)
    return ModelCatalog({"ours": target}, fixed=["ours"])


async def test_loads_go_to_the_upstream() -> None:
    client = Recorded(load=(200, b""), unload=(200, b""), simple=(400, b"{}"))
    catalog = controlled(client)
    await catalog.load("ours")
    await catalog.unload("ours", ModelControl(dependents=True))
    assert client.asked == [
        "/v2/repository/models/simple/load",
        "/v2/models/simple",
        "/v2/repository/models/simple/unload",
    ]
    assert "ours" in catalog.models


async def test_a_load_that_the_upstream_refuses() -> None:
    client = Recorded(load=(400, b'{"error":"no such model"}'))
    with pytest.raises(InferenceError, match="no such model") as caught:
        await controlled(client).load("ours")
    assert (caught.value.code, caught.value.origin) == (ErrorCode.INVALID_TENSOR, "there")


@pytest.mark.parametrize("control", [ModelControl(config=b""), ModelControl(files={"1/x": b""})])
async def test_what_does_not_travel_with_a_load(control: ModelControl) -> None:
    client = Recorded()
    with pytest.raises(InferenceError, match="is behind another server") as caught:
        await controlled(client).load("ours", control)
    assert caught.value.code is ErrorCode.UNSUPPORTED
    assert not client.asked


async def test_an_upstream_whose_models_are_not_for_clients_to_control() -> None:
    client = Recorded()
    for ask in (controlled(client, False).load, controlled(client, False).unload):
        with pytest.raises(InferenceError, match="is not allowed") as caught:
            await ask("ours")
        assert caught.value.code is ErrorCode.UNAVAILABLE
    assert not client.asked


async def test_a_load_of_a_model_that_the_bridge_does_not_list() -> None:
    client = Recorded()
    for act in (controlled(client).load, controlled(client).unload):
        with pytest.raises(
            InferenceError, match="'theirs' is not found: no upstream of this server lists it"
        ) as caught:
            await act("theirs")
        assert caught.value.code is ErrorCode.NOT_FOUND
    assert not client.asked
