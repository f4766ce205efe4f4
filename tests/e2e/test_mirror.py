"""Mirrors of the real daemon: what is found of a server that errs, what callers notice (nothing), and copies from
and to every dialect."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from aiohttp import web

from interlingua.schemas import (
    Datatype,
    InferRequest,
    InferResponse,
    Operation,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.translator.cli import main
from interlingua.translator.cli.exchange import upstream_of
from interlingua.translator.recording.files import RecordingReader
from tests.e2e.background import Background
from tests.e2e.daemon import WAIT_SECS, Daemon
from tests.waiting import eventually, until

VALUES = [0.5, 1.0, 2.0, 4.0]
FAULTS = ["right", "wrong", "dropping", "slow", "dying"]
SLOW_SECS = 0.4


class Far:
    """A server whose models answer INPUT0 in OUTPUT0 and twice that in OUTPUT1, each with a fault of its own,
    which is its name. ``open``: whether those that are ``slow`` and ``waiting`` answer."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}
        self.open = {"slow": threading.Event(), "waiting": threading.Event()}

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/v2", self._server)
        application.router.add_get("/v2/health/ready", self._ready)
        application.router.add_get("/v2/models/{model}", self._metadata)
        application.router.add_post("/v2/models/{model}/infer", self._infer)
        return application

    async def _server(self, _: web.Request) -> web.Response:
        return web.json_response({"name": "far", "version": "1", "extensions": []})

    async def _ready(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _metadata(self, request: web.Request) -> web.Response:
        def tensors(*names: str) -> list[dict[str, Any]]:
            return [{"name": name, "datatype": "FP32", "shape": [-1]} for name in names]

        return web.json_response(
            {
                "name": request.match_info["model"],
                "versions": ["1"],
                "platform": "far",
                "inputs": tensors("INPUT0"),
                "outputs": tensors("OUTPUT0", "OUTPUT1"),
            }
        )

    async def _infer(self, request: web.Request) -> web.Response:
        model = request.match_info["model"]
        self.asked[model] = self.asked.get(model, 0) + 1
        body = await request.read()
        head = int(request.headers.get("Inference-Header-Content-Length", len(body)))
        tensor = json.loads(body[:head])["inputs"][0]
        values = np.frombuffer(body[head:], np.float32) if body[head:] else np.float32(tensor["data"])
        outputs = {"OUTPUT0": values.copy(), "OUTPUT1": values * np.float32(2)}
        if model == "wrong":
            outputs["OUTPUT1"][2] += np.float32(1e-3)
        elif model == "dropping":
            del outputs["OUTPUT0"]
        elif model == "dying":
            assert request.transport is not None
            request.transport.abort()
        await until(lambda: model not in self.open or self.open[model].is_set(), WAIT_SECS)
        return web.json_response(
            {
                "model_name": model,
                "outputs": [
                    {"name": name, "datatype": "FP32", "shape": [len(values)], "data": output.tolist()}
                    for name, output in outputs.items()
                ],
            }
        )


def reports(daemon: Daemon) -> dict[str, dict[str, Any]]:
    """What the mirrors have found, by name."""
    told = requests.get(f"{operators(daemon)}/mirror", timeout=60).json()
    return {mirror["name"]: mirror for mirror in told["mirrors"]}


def operators(daemon: Daemon) -> str:
    (line,) = (line for line in daemon.log if line["event"] == "admin listening")
    return f"http://{line['address']}"


def found(daemon: Daemon, name: str, count: int) -> dict[str, Any]:
    """The report of mirror ``name`` when ``count`` copies have been compared."""
    eventually(lambda: reports(daemon)[name]["compared"] >= count)
    return reports(daemon)[name]


def ask(daemon: Daemon, model: str, values: list[float] = VALUES) -> None:
    """Ask ``model``, which must answer right."""
    body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [len(values)], "data": values}]}
    reply = requests.post(f"http://{daemon.addresses[0]}/v2/models/{model}/infer", json=body, timeout=60)
    assert reply.status_code == 200, reply.text
    outputs = {output["name"]: output["data"] for output in reply.json()["outputs"]}
    assert outputs == {"OUTPUT0": values, "OUTPUT1": [2 * value for value in values]}


@pytest.fixture(scope="module")
def far(daemon_workers: int) -> Far:
    """One for each daemon: it counts, and stays open."""
    return Far()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs") / "wrong.pairs"


@pytest.fixture(scope="module")
def daemon(far: Far, pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Callers ask a model by the name of the fault that the mirror's has."""
    background = Background()
    url = background.serve(far.application())
    options: dict[str, dict[str, Any]] = {
        "wrong": {"keep": {"path": str(pairs), "different": 2, "equal": 0}},
        "waiting": {"max_queue_requests": 3, "max_concurrency": 1, "finish_secs": 0.2},
    }
    daemon = Daemon.start(
        tmp_path_factory.mktemp("mirror"),
        {
            "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
            "admin": {"listen": "127.0.0.1:0"},
            "upstreams": {"far": {"dialect": "oip", "transport": "http", "urls": [url]}},
            "models": {
                "callers": {"upstream": "far", "remote_model": "right"},
                **{
                    f"far_{fault}": {"upstream": "far", "remote_model": fault}
                    for fault in [*FAULTS, "waiting"]
                },
            },
            "routes": [
                {
                    "match": {"model": fault},
                    "to": "callers",
                    # a copy may wait until another front end has started the process for its own
                    "mirror": {
                        "to": f"far_{fault}",
                        "request_timeout_secs": WAIT_SECS,
                        **options.get(fault, {}),
                    },
                }
                for fault in [*FAULTS, "waiting"]
            ],
        },
    )
    try:
        yield daemon
        assert daemon.stop() == 0
        assert not [line for line in daemon.log if "unexpected error" in line["event"]], daemon.log
    finally:
        daemon.kill()
        background.close()


def test_answers_that_are_equal(daemon: Daemon) -> None:
    for _ in range(3):
        ask(daemon, "right")
    report = found(daemon, "right", 3)
    assert (report["equal"], report["different"], report["failures"]) == (3, 0, {})
    assert {name: output["max_absolute"] for name, output in report["outputs"].items()} == {
        "OUTPUT0": 0.0,
        "OUTPUT1": 0.0,
    }


def test_one_element_that_is_wrong(daemon: Daemon, pairs: Path) -> None:
    for _ in range(3):
        ask(daemon, "wrong")
    report = found(daemon, "wrong", 3)
    assert (report["equal"], report["different"]) == (0, 3)
    assert report["outputs"]["OUTPUT0"]["different"] == 0
    wrong = report["outputs"]["OUTPUT1"]
    assert (wrong["different"], wrong["elements_different"], wrong["faults"]) == (3, 3, {"values": 3})
    assert wrong["max_absolute"] == pytest.approx(1e-3, rel=1e-3)
    assert wrong["max_relative"] == pytest.approx(1e-3 / 4, rel=1e-3)
    assert (wrong["first"]["index"], wrong["first"]["expected"]) == ([2], "4.0")
    assert report["kept"] == {"different": 2}
    with RecordingReader(pairs) as reader:
        kept = list(reader)
    assert len(kept) == 2
    answers = [
        answer.responses[0].outputs[1].numpy()[2] for answer in (kept[0].answer, kept[0].mirrored) if answer
    ]
    assert answers == [np.float32(4.0), np.float32(4.001)]


def test_an_output_that_is_dropped(daemon: Daemon) -> None:
    ask(daemon, "dropping")
    report = found(daemon, "dropping", 1)
    told = [
        report["different"],
        report["outputs"]["OUTPUT0"]["faults"],
        report["outputs"]["OUTPUT1"]["faults"],
    ]
    assert told == [1, {"missing": 1}, {}]


def test_a_server_that_is_slow(daemon: Daemon, far: Far) -> None:
    # callers do not wait for it: it answers after they have their answers
    for _ in range(4):
        ask(daemon, "slow")
    eventually(lambda: far.asked.get("slow") == 4)
    time.sleep(SLOW_SECS)
    far.open["slow"].set()
    report = found(daemon, "slow", 4)
    assert (report["equal"], report["different"]) == (4, 0), json.dumps(report)
    assert report["latency_ms"]["mirror"]["mean"] >= SLOW_SECS * 1000
    assert report["latency_ms"]["primary"]["mean"] < report["latency_ms"]["mirror"]["mean"]


def test_a_server_that_dies(daemon: Daemon) -> None:
    for _ in range(2):
        ask(daemon, "dying")
    report = found(daemon, "dying", 2)
    assert report["different"] == 2
    assert report["failures"]["failed"]["count"] == 2
    assert report["failures"]["failed"]["last"].startswith("UNAVAILABLE")
    assert report["outputs"] == {}


def test_what_waits_is_bounded(daemon: Daemon, far: Far) -> None:
    for _ in range(10):
        ask(daemon, "waiting")
    eventually(lambda: far.asked.get("waiting") == 1)
    # copies are made a moment after the answers
    eventually(lambda: reports(daemon)["waiting"]["dropped"].get("queue") == 7)
    report = reports(daemon)["waiting"]
    assert (report["held"]["requests"], report["dropped"]) == (3, {"queue": 7})
    far.open["waiting"].set()
    report = found(daemon, "waiting", 3)
    assert (report["equal"], report["held"]) == (3, {"requests": 0, "bytes": 0})


def test_the_command_and_the_metrics(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    ask(daemon, "wrong")
    eventually(lambda: reports(daemon)["wrong"]["different"] > 0)
    assert main(["mirror", "report", "--url", operators(daemon)]) == 1
    shown = capsys.readouterr().out
    assert "wrong, copies to far_wrong:" in shown
    assert "at [2], expected 4.0, got 4.00" in shown
    text = requests.get(f"{operators(daemon)}/metrics", timeout=60).text
    assert 'interlingua_mirror_requests_total{mirror="wrong",to="far_wrong",result="different"}' in text


# --- every dialect

SHAPE = (-1, 3)
STATED = {
    "inputs": [{"name": "IN", "datatype": "FP32", "shape": list(SHAPE)}],
    "outputs": [{"name": "IN", "datatype": "FP32", "shape": list(SHAPE)}],
}
ECHO = {"backend": "identity", "signature": STATED}
KINDS = [
    ("oip", "http"),
    ("oip", "grpc"),
    ("trtis", "http"),
    ("trtis", "grpc"),
    ("graphpipe", "http"),
    ("graphpipe", "tcp"),
    ("grps", "http"),
    ("grps", "grpc"),
    ("grps", "brpc"),
]
LISTENERS = [
    {
        "listen": "127.0.0.1:0",
        "transport": transport,
        **({"default_model": "echo"} if transport == "tcp" else {}),
    }
    for transport in ("http", "grpc", "brpc", "tcp")
]


def address(daemon: Daemon, transport: str) -> str:
    return next(line["address"] for line in daemon.log if line.get("transport") == transport)


async def ask_in(
    dialect: str, transport: str, url: str, model: str, values: np.ndarray[Any, Any]
) -> InferResponse:
    """The answer of ``model`` to ``values``, asked by a client of ``dialect``."""
    spec = TensorSpec("IN", Datatype.FP32, SHAPE)
    upstream = upstream_of(dialect, transport, url, 30.0)
    name = "" if transport == "tcp" else model
    try:
        response: InferResponse = await upstream.call(
            Operation.INFER,
            InferRequest(name, (Tensor.from_numpy("IN", values),)),
            Signature((spec,), (spec,)),
        )
        return response
    finally:
        await upstream.close()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon whose ``to_D_T`` have mirrors that are asked in dialect D over T; ``echo``, the one model of its
    listener without names, has one too."""
    config: dict[str, Any] = {"listeners": LISTENERS, "models": {"echo": ECHO}}
    far = Daemon.start(tmp_path_factory.mktemp("far"), config)
    daemon = None
    try:
        elsewhere = {"_".join(kind): kind for kind in KINDS}
        config = {
            "listeners": LISTENERS,
            "admin": {"listen": "127.0.0.1:0"},
            "upstreams": {
                name: {"dialect": dialect, "transport": transport, "urls": [address(far, transport)]}
                for name, (dialect, transport) in elsewhere.items()
            },
            "models": {
                "echo": ECHO,
                "here": ECHO,
                **{
                    name: {
                        "upstream": name,
                        "remote_model": "" if kind[1] == "tcp" else "echo",
                        "signature": STATED,
                    }
                    for name, kind in elsewhere.items()
                },
            },
            "routes": [
                *(
                    {"match": {"model": f"to_{name}"}, "to": "echo", "mirror": {"to": name}}
                    for name in elsewhere
                ),
                {"match": {"model": "to_here"}, "to": "echo", "mirror": {"to": "here"}},
                {"match": {"model": "echo"}, "to": "echo", "mirror": {"to": "oip_grpc"}},
            ],
        }
        daemon = Daemon.start(tmp_path_factory.mktemp("near"), config)
        yield daemon
        assert daemon.stop() == 0
        assert not [line for line in daemon.log if "unexpected error" in line["event"]], daemon.log
    finally:
        far.kill()
        if daemon is not None:
            daemon.kill()


def test_callers_of_every_dialect_and_mirrors_in_every_dialect(both: Daemon) -> None:
    values = np.array([[1.5, -0.0, np.nan], [np.inf, 1e-45, 3.4e38]], np.float32)
    named = [kind for kind in KINDS if kind[1] != "tcp"]
    targets = ["_".join(kind) for kind in KINDS] + ["here"]

    async def everything() -> None:
        for dialect, transport in KINDS:
            models = [f"to_{target}" for target in targets] if transport != "tcp" else ["echo"]
            for model in models:
                answer = await ask_in(dialect, transport, address(both, transport), model, values)
                assert answer.outputs[0].view == Tensor.from_numpy("IN", values).view, (dialect, model)

    asyncio.run(everything())
    for target in targets:
        report = found(both, f"to_{target}", len(named))
        assert (report["equal"], report["different"]) == (len(named), 0), report
    assert found(both, "echo", 1)["equal"] == 1


def test_copies_to_a_model_here_are_not_its_own_requests(both: Daemon) -> None:
    values = np.ones((2, 3), np.float32)
    before = reports(both)["to_here"]["compared"]
    address_of = address(both, "http")
    asyncio.run(ask_in("oip", "http", address_of, "to_here", values))
    found(both, "to_here", before + 1)
    (version,) = requests.get(f"http://{address_of}/v2/models/here/stats", timeout=60).json()["model_stats"]
    assert (version["inference_count"], version["execution_count"]) == (0, 0)
    told = requests.get(f"{operators(both)}/metrics", timeout=60).text
    assert 'nv_inference_request_success{model="here",version="1"} 0' in told
    asyncio.run(ask_in("oip", "http", address_of, "here", values))
    (version,) = requests.get(f"http://{address_of}/v2/models/here/stats", timeout=60).json()["model_stats"]
    assert version["execution_count"] == 1
