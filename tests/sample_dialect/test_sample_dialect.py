"""A dialect that is registered at run time works everywhere, with no file of the product changed."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
import requests

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import Address, parse_url
from interlingua.protocols.transport.clients import client_of
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import ErrorCode, InferenceError, InferRequest, ModelRef, Operation, Tensor
from interlingua.translator import daemon
from interlingua.translator.config import ConfigError, parse
from interlingua.translator.config.context import Installation
from interlingua.translator.conformance import wires
from interlingua.translator.conformance.discovery import discover
from interlingua.translator.conformance.kit import Effort, checks_of, run_all
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.fidelity.page import page
from interlingua.translator.fidelity.path import matrix
from interlingua.translator.takeover.handover import Handover
from interlingua.translator.welcome import welcome
from tests.loopback import HttpLoopback, behind, echoing, serving
from tests.properties import test_any_to_any as any_to_any
from tests.properties import test_capabilities as capabilities
from tests.sample_dialect import DIALECT
from tests.sample_dialect.wires import WIRES
from tests.strategies import signature_of

WIRE = ("sample", "http")
X = Tensor.from_numpy("x", np.arange(4, dtype=np.float32).reshape(2, 2))
SIGNATURE = signature_of([X], [X])
TARGETS = [(dialect.name, transport) for dialect in DIALECTS.values() for transport in dialect.bindings]
GENERIC = [
    any_to_any.test_a_request_survives,
    any_to_any.test_what_a_dialect_cannot_carry_is_refused_by_name,
    any_to_any.test_metadata_survives,
    any_to_any.test_errors_keep_their_message_and_their_kind,
    capabilities.test_ids,
    capabilities.test_models,
    capabilities.test_versions,
    capabilities.test_parameters,
    capabilities.test_sequences,
    capabilities.test_priorities,
    capabilities.test_requested_outputs,
    capabilities.test_classification,
    capabilities.test_shared_memory,
    capabilities.test_answers,
    capabilities.test_batch_limits,
    capabilities.test_scalars_and_nothing,
    capabilities.test_names,
    capabilities.test_text,
    capabilities.test_errors,
    capabilities.test_streams,
]


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DIALECTS, "sample", DIALECT)
        patch.setitem(wires.REGISTERED, "sample", WIRES)
        yield


@pytest.mark.parametrize("generic", GENERIC, ids=lambda each: each.__name__)
def test_generic_properties_hold(generic: object) -> None:
    generic(wire=WIRE)  # type: ignore[operator]


@pytest.mark.parametrize("target", [*TARGETS, WIRE], ids="/".join)
async def test_it_serves_and_bridges_to_every_target(target: tuple[str, str]) -> None:
    dialect, transport = target
    far = serving(echoing({"m": SIGNATURE}), dialect, default_model="m")
    declared = None if DIALECTS[dialect].bindings[transport].capability.signatures else SIGNATURE
    pipeline = serving({"m": behind(far, dialect, transport, "m", declared=declared)}, "sample")
    client = Upstream("near", DIALECT.bindings["http"].calls, [HttpLoopback(pipeline)], 5.0)
    response = await client.call(Operation.INFER, InferRequest("m", (X,)))
    assert response.outputs == (X,)
    assert pipeline.request_metrics.keys() == {"sample"}
    with pytest.raises(InferenceError) as caught:
        await client.call(Operation.MODEL_METADATA, ModelRef("absent"))
    assert caught.value.code is ErrorCode.NOT_FOUND


async def test_a_daemon_serves_and_counts_it(caplog: pytest.LogCaptureFixture) -> None:
    models = (
        "{m: {backend: identity, signature: {inputs: [{name: x, datatype: FP32, shape: [-1, 2]}],"
        " outputs: [{name: x, datatype: FP32, shape: [-1, 2]}]}}}"
    )
    config = parse(
        f"""{{server: {{drain_secs: 0}}, admin: {{listen: "127.0.0.1:0"}}, models: {models},
             listeners: [{{listen: "127.0.0.1:0", transport: http, dialects: [oip, sample]}}]}}"""
    )
    caplog.set_level(logging.INFO, "interlingua")
    running = asyncio.create_task(daemon._serve(config, "c.yaml", Handover(config, False)))

    def address(event: str) -> str:
        return next(record.facts["address"] for record in caplog.records if record.msg == event)  # type: ignore[attr-defined]

    async with asyncio.timeout(30):
        while "serving" not in [record.msg for record in caplog.records]:
            assert not running.done() or running.result()
            await asyncio.sleep(0.01)
        client = client_of("http")(parse_url(address("listening"), "http"))
        near = Upstream("near", DIALECT.bindings["http"].calls, [client], 5.0)
        assert (await near.call(Operation.INFER, InferRequest("m", (X,)))).outputs == (X,)
        await client.close()
        found = await asyncio.to_thread(
            requests.get, f"http://{address('admin listening')}/metrics", timeout=10
        )
        (counted,) = (
            line
            for line in found.text.splitlines()
            if line.startswith("interlingua_requests_total{") and 'dialect="sample"' in line
        )
        assert counted.endswith(" 1")
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 0


def test_check_knows_it() -> None:
    assert Installation.present().serves["sample"] == {"http"}
    config = parse(
        """{listeners: [{listen: ":0", transport: http, dialects: [oip, sample]}, {listen: ":0", transport: http}],
            upstreams: {there: {dialect: sample, transport: http, urls: ["127.0.0.1:1"]}},
            models: {m: {upstream: there}}}"""
    )
    assert [options.dialects[-1] for options in config.listeners] == ["sample", "grps"]
    with pytest.raises(ConfigError, match="sample"):
        parse('{listeners: [{listen: ":0", transport: grpc, dialects: [sample]}]}')
    lines = welcome(config, [(config.listeners[0], Address("127.0.0.1", 8000))])
    assert "curl -s http://127.0.0.1:8000/v1/models/m" in lines


def test_it_is_in_the_matrix_of_fidelity() -> None:
    assert {("sample/http", "python"), ("oip/grpc", "sample/http")} <= matrix().keys()
    assert "## From sample/http" in page()


def test_the_conformance_kit_judges_it() -> None:
    binding = DIALECT.bindings["http"]
    client = HttpLoopback(serving(echoing({"m": SIGNATURE}), "sample"))
    with ServerUnderTest(binding, "localhost:1", wires.wires()["sample/http"], "m", client=client) as server:
        discover(server)
        # the one check that opens a connection has no server to connect to
        checks = [each for each in checks_of(server.wire) if each.name != "malformed/connection-kept"]
        results = list(run_all(server, checks, Effort(examples=5)))
    assert [(each.check.name, each.reason) for each in results if each.status.bad] == []
    assert "answers/exact-values" in {each.check.name for each in results if not each.reason}
