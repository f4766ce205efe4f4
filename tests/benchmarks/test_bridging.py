"""The benchmark of bridging runs, and would notice a server that answers something else."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks import processes
from benchmarks.bridging import memory, stages
from benchmarks.bridging import traffic as traffic_module
from benchmarks.bridging.requests import ModelUse, request
from benchmarks.bridging.sampler import name_of
from benchmarks.bridging.servers import DIGITS, Servers
from benchmarks.bridging.stages import stage_of
from benchmarks.bridging.table import ROWS, Row
from benchmarks.bridging.traffic import Traffic, check
from benchmarks.bridging.turns import Found
from interlingua.protocols.transport.received import SharedReceiver
from interlingua.protocols.transport.writes import WriteBatch
from interlingua.protocols.wire import Buffer

ROOT = Path(__file__).parents[2]


def test_rows_are_measured_against_their_baselines() -> None:
    only = ("GraphPipe HTTP -> OIP HTTP, 64 B", "serving OIP HTTP, ONNX identity")
    run = [sys.executable, "-m", "benchmarks.bridging", "--quick", "--json", "--only", *only]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert not done.returncode, done.stderr
    rows = json.loads(done.stdout)["rows"]
    peers = [(row["row"].split(",")[0], row["peer"]) for row in rows]
    bridged = "GraphPipe HTTP -> OIP HTTP"
    assert peers == [(bridged, "serving"), (bridged, "library oip http"), ("serving OIP HTTP", "serving")]
    for row in rows:
        assert row["us"] > 0
        assert row["peer_us"] > 0
        within = row["target"] is None or row["ratio"] <= row["target"]
        assert row["verdict"] == ("for comparison" if row["target"] is None else "ok" if within else "over")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_a_request_carries_its_numbers(row: Row) -> None:
    sent = row.request()
    assert sent.echoed
    assert sent.echoed in sent.sent() or row.model is not None
    assert len(sent.entity()) > min(row.size, 60)
    assert len({row.title for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("size", [64, 4 << 20])
@pytest.mark.parametrize("relay", ["http1 relay", "http2 relay"])
def test_the_bare_relays_relay(relay: str, size: int, tmp_path: Path) -> None:
    with ExitStack() as running:
        server = Servers(tmp_path, running)[relay]
        assert server is not None
        (transport,) = server.addresses
        sent = request("oip", transport, size)
        assert Traffic(tmp_path).cost_us(server, sent, 64) > 0
        check(server.addresses[transport], sent)


def test_clients_of_our_own_replace_h2load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_module.shutil, "which", lambda _: None)
    traffic = Traffic(tmp_path)
    assert traffic.name == "benchmarks.clients"
    with processes.floor("http") as server:
        assert traffic.cost_us(server, request("graphpipe", "http", 64), 64) > 0


def test_a_wrong_answer_does_not_count(tmp_path: Path) -> None:
    with processes.floor("json") as server, pytest.raises(RuntimeError, match="answered|wrong"):
        Traffic(tmp_path).cost_us(server, request("graphpipe", "http", 64), 64)


def test_memory_is_that_above_idle(tmp_path: Path) -> None:
    with ExitStack() as running:
        figures = list(memory.measure(Servers(tmp_path, running), tmp_path, quick=True))
    assert len(figures) == 3
    for figure in figures:
        assert figure.value > 0
        assert figure.verdict == ("ok" if figure.value <= figure.target else "missed")


def test_tritonclient_loads_as_the_other_clients_do(tmp_path: Path) -> None:
    sent = request("oip", "grpc", 256, ModelUse("digits", "image", ("label", "probabilities"), DIGITS))
    (tmp_path / "request").write_bytes(sent.sent())
    order = {"request": str(tmp_path / "request"), "clients": 4, "secs": 0.1}
    with ExitStack() as running:
        server = Servers(tmp_path, running)["serving"]
        clients = running.enter_context(processes.clients("benchmarks.bridging.tritonclient_load"))
        clients.connect({**order, "address": server.addresses["grpc"]})
        told = clients.go()
    assert told["count"] >= 4
    assert 0 < told["p50_ms"] <= told["p99_ms"]


@pytest.mark.parametrize(
    ("stage", "stack"),
    [
        (
            "decode",
            [
                "interlingua.protocols.trtis.codec:_Check.outputs",
                "interlingua.translator.serving.dispatch:Dispatch._decode",
            ],
        ),
        (
            "encode answer",
            [
                "interlingua.protocols.trtis.codec:encode_response",
                "interlingua.translator.serving.processor:perform",
            ],
        ),
        (
            "encode",
            [
                "interlingua.protocols.oip.codec_grpc:encode_call",
                "interlingua.runtime.upstream.upstream:Upstream.call",
            ],
        ),
        (
            "decode answer",
            [
                "interlingua.protocols.oip.codec_grpc:_outputs",
                "interlingua.runtime.upstream.upstream:Upstream.call",
            ],
        ),
        (
            "pool",
            [
                "interlingua.runtime.upstream.pool.pool:Pool.pick",
                "interlingua.runtime.upstream.model:UpstreamModel.infer",
            ],
        ),
        (
            "route",
            [
                "interlingua.schemas.tensor:element_count",
                "interlingua.runtime.models.validation:RequestCheck.check",
            ],
        ),
        ("open", ["interlingua.translator.serving.handler:TransportPipeline.serve"]),
        ("read answer", ["interlingua.protocols.transport.brpc.client:_Connection.data_received"]),
        (
            "write",
            [
                "interlingua.protocols.transport.writes:write_pieces",
                "interlingua.protocols.transport.brpc.client:_Connection._call",
            ],
        ),
        ("read", ["interlingua.protocols.transport.http.connection:HttpConnection.data_received"]),
        ("write answer", ["interlingua.protocols.transport.http.writer:AnswerWriter.whole"]),
        ("write answer", ["interlingua.protocols.transport.grpc.server:_Connection.flush"]),
        (
            "encode",
            [
                "interlingua.protocols.splice:Splice.of",
                "interlingua.runtime.upstream.forward:UpstreamForward.begin",
            ],
        ),
        (
            "encode answer",
            [
                "interlingua.protocols.splice:Splice.of",
                "interlingua.runtime.upstream.replies:Replies.read",
            ],
        ),
        ("decode answer", ["interlingua.runtime.upstream.replies:Replies.read"]),
        ("wait", ["asyncio.events:Handle._run"]),
    ],
)
def test_a_sample_has_a_stage(stage: str, stack: list[str]) -> None:
    assert stage_of([*stack, "asyncio.runners:Runner.run"]) == stage


async def test_what_both_sides_share_counts_for_its_connection() -> None:
    """The event loop itself calls it."""
    names: list[str] = []

    class Received(SharedReceiver):
        def data_received(self, data: Buffer) -> None:
            frame = inspect.currentframe()
            assert frame is not None and frame.f_back is not None
            names.append(name_of(frame.f_back))

    class Full(asyncio.WriteTransport):
        def is_closing(self) -> bool:
            return False

        def get_protocol(self) -> asyncio.BaseProtocol:
            return received

        def write(self, data: Any) -> None:
            frame = inspect.currentframe()
            assert frame is not None and frame.f_back is not None
            names.append(name_of(frame.f_back))

    received = Received(memoryview(bytearray(8)))
    received.buffer_updated(4)
    WriteBatch(asyncio.get_running_loop(), cast("asyncio.Transport", Full())).write(b"a")
    await asyncio.sleep(0)
    owner = f"{__name__}:{Received.__qualname__}"
    assert names == [f"{owner}.buffer_updated", f"{owner}.flush"]


def test_stages_make_up_the_whole(tmp_path: Path) -> None:
    row = next(row for row in ROWS if row.title == "TRTIS HTTP -> OIP gRPC, 64 B")
    with ExitStack() as running:
        us, found, samples = stages.measure(row, Servers(tmp_path, running), tmp_path / "stages", 600)
    assert samples
    assert sum(found.values()) == pytest.approx(us)


def test_a_peer_that_is_not_installed_is_named() -> None:
    assert Found("a row", 1.0, "nginx", None, None, 2.5).verdict == "not installed"
