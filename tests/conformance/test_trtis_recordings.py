"""What the client library of release 1.15 sent, answered by us: to the byte as it was answered then.

The answers were recorded from a server that this client accepts in every respect. Its two models are
among our examples, so a listener's pipeline over the real runtime answers here; there is no network.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from interlingua.protocols.trtis import DIALECT
from interlingua.protocols.trtis.codec import RESPONSE_HEADER
from interlingua.protocols.trtis.status import SERVER_STATUS
from interlingua.protocols.wire import HttpRequest, parts_of
from interlingua.runtime.repository.files import find_models, load_models
from interlingua.runtime.target import Target
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.schemas import ServerMetadata
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router
from tests.loopback import HttpLoopback
from tests.properties.passing import Counting, Decoding

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "golden" / "trtis" / "http_exchanges.json"


@dataclass
class Message:
    """A request or an answer, its header names in lower case."""

    first: str
    headers: dict[str, str]
    body: bytes


def message(recorded: str) -> Message:
    head, _, body = base64.b64decode(recorded).partition(b"\r\n\r\n")
    first, *lines = head.decode("ascii").split("\r\n")
    pairs = (line.split(":", 1) for line in lines)
    return Message(first, {name.lower(): value.strip() for name, value in pairs}, body)


EXCHANGES = [
    (message(each["request_b64"]), message(each["response_b64"])) for each in json.loads(RECORDED.read_text())
]

INFERENCES = [index for index, (request, _) in enumerate(EXCHANGES) if "/api/infer/" in request.first]


async def ask(server: Pipeline, asked: Message) -> Message:
    method, target, _ = asked.first.split()
    path, _, query = target.partition("?")
    request = HttpRequest(method, path, query, asked.headers, asked.body)
    answer = server.handlers["http"].head(request) or await server.handlers["http"].serve(request)
    headers = {name.lower(): value for name, value in answer.headers}
    return Message(str(answer.status), headers, b"".join(parts_of(answer)))


def serving(models: Mapping[str, Target]) -> Pipeline:
    service = Service(Router(models), ServerMetadata("inference", "1"))
    return Pipeline(service, "replay", [*DIALECT.bindings.values()])


def load() -> Mapping[str, Any]:
    found = find_models(ROOT / "examples" / "models")
    return load_models([source for source in found if source.name in ("simple", "classy")]).models


@pytest.fixture(scope="module")
def answers() -> list[Message]:
    """Our answers to all recorded requests, asked in their order."""

    async def ask_all() -> list[Message]:
        models = load()
        server = serving(models)
        told = [await ask(server, request) for request, _ in EXCHANGES]
        for model in models.values():
            await model.close()
        return told

    return asyncio.run(ask_all())


async def test_a_bridge_passes_them_with_the_same_answers() -> None:
    models = load()
    there = HttpLoopback(serving(models))
    told, passed = [], []
    for kind in (Counting, Decoding):
        upstream = kind("there", DIALECT.bindings["http"].calls, [there], 5.0)
        server = serving({name: UpstreamModel(name, upstream, name) for name in models})
        told.append([await ask(server, EXCHANGES[index][0]) for index in INFERENCES])
        passed.append(upstream.passed)
    for model in models.values():
        await model.close()
    assert told[0] == told[1]
    # one asks for classes, one is wrong
    assert passed == [len(INFERENCES) - 2, 0]


def test_what_was_recorded() -> None:
    assert [request.first.split("?")[0] for request, _ in EXCHANGES] == [
        "GET /api/status/simple",
        "POST /api/infer/simple/1",
        "POST /api/infer/simple/1",
        "GET /api/status/classy",
        "POST /api/infer/classy",
        "POST /api/infer/simple/1",
    ]


@pytest.mark.parametrize("index", range(len(EXCHANGES)))
def test_the_head_is_the_recorded_one(answers: list[Message], index: int) -> None:
    (_, expected), told = EXCHANGES[index], answers[index]
    assert told.first == expected.first.split()[1]
    assert told.headers["nv-status"] == expected.headers["nv-status"]
    assert told.headers["content-type"] == expected.headers["content-type"]
    if "nv-inferresponse" in expected.headers:
        header = text_format.Parse(expected.headers["nv-inferresponse"], RESPONSE_HEADER())
        for output in header.output:
            del output.batch_classes[:]  # which stand in the body alone, see docs/dialects/trtis.md
        assert text_format.Parse(told.headers["nv-inferresponse"], RESPONSE_HEADER()) == header
        if "batch_classes" not in expected.headers["nv-inferresponse"]:
            assert told.headers["nv-inferresponse"] == expected.headers["nv-inferresponse"]


@pytest.mark.parametrize("index", INFERENCES)
def test_the_body_of_an_inference_is_the_recorded_one(answers: list[Message], index: int) -> None:
    assert answers[index].body == EXCHANGES[index][1].body


@pytest.mark.parametrize(("index", "name"), [(0, "simple"), (3, "classy")])
def test_a_status_has_what_the_client_reads(answers: list[Message], index: int, name: str) -> None:
    servers = [SERVER_STATUS.FromString(each.body) for each in (EXCHANGES[index][1], answers[index])]
    assert servers[0].version == servers[1].version
    expected, told = (server.model_status[name] for server in servers)
    for config in (expected.config, told.config):
        # which engine runs a model, and from which file, is each server's own; the recorded one said
        # nothing of memory
        for field in ("platform", "default_model_filename", "instance_group", "optimization"):
            config.ClearField(field)
        for output in config.output:
            output.ClearField("label_filename")
    assert told.config == expected.config
    assert told.version_status[1].ready_state == expected.version_status[1].ready_state
    assert list(told.version_status) == [1]
