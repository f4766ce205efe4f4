"""The process that judges for the daemon: the same verdicts as here, and what happens when it dies."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.grps.codec import WireForm
from interlingua.protocols.grps.message import Kind
from interlingua.runtime import interpreter
from interlingua.runtime.repository.files import Loaded
from interlingua.schemas import (
    CancelToken,
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    RequestedOutput,
    Sequence,
    SharedMemoryRef,
    Tensor,
)
from interlingua.translator.assembly import assemble
from interlingua.translator.config import Config, parse
from interlingua.translator.mirror import Mirror, wire
from interlingua.translator.mirror import process as processes
from interlingua.translator.mirror.comparison import Copy
from interlingua.translator.mirror.findings import Findings
from interlingua.translator.mirror.process import JudgeProcess, RemoteJudge
from interlingua.translator.recording.files import RecordingReader
from interlingua.translator.recording.record import Record, RecordedAnswer
from tests.standins import oip_http_server
from tests.translator.mirror.mirrored import answered, request, settled


def config(url: str, **mirror: Any) -> Config:
    document = {
        "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
        "models": {
            "m": {"upstream": "far", "remote_model": "identity"},
            "other": {"upstream": "far", "remote_model": "identity"},
        },
        "upstreams": {"far": {"dialect": "oip", "transport": "http", "urls": [url]}},
        "routes": [{"to": "m"}, {"to": "m", "mirror": {"to": "other", **mirror}}],
    }
    return parse(yaml.safe_dump(document))


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """Where a server is that has ``identity``."""
    runner = web.AppRunner(oip_http_server.oip_http_server(oip_http_server.Seen()))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield "{}:{}".format(*runner.addresses[0][:2])
    finally:
        await runner.cleanup()


class Asker:
    """Has records judged, and hears what was found."""

    def __init__(self, judge: RemoteJudge) -> None:
        self.judge = judge
        self.heard: asyncio.Queue[Findings] = asyncio.Queue()

    def submit(self, record: Record) -> None:
        self.judge.submit(Copy(record, record.nbytes, 30.0), self.heard.put_nowait)

    async def found(self, record: Record) -> Findings:
        self.submit(record)
        async with asyncio.timeout(30):
            return await self.heard.get()


@asynccontextmanager
async def judging(settings: Config) -> AsyncIterator[Asker]:
    judge = JudgeProcess(settings).judge_of(1)
    try:
        yield Asker(judge)
    finally:
        await judge.close()


def requested(*values: float) -> InferRequest:
    wanted = request(id="7")
    wanted.inputs = (Tensor.from_numpy("INPUT0", np.array(values, np.float32)),)
    return wanted


def record(*values: float, right: tuple[float, ...] = ()) -> Record:
    output = Tensor.from_numpy("OUTPUT0", np.array(right or values, np.float32))
    return Record.of(answered(requested(*values), output))


async def test_the_process_calls_remote_models(url: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs"
    async with judging(config(url, keep={"path": str(path), "equal": 0})) as asker:
        await asker.judge.start()
        large = tuple(float(number) for number in range(300_000))
        first = await asker.found(record(1.0, 2.0))
        second = await asker.found(record(1.0, 2.0, right=(1.0, 2.5)))
        third = await asker.found(record(*large))
        assert [found.counts.equal for found in (first, second, third)] == [1, 0, 1]
        assert [(found.count, found.lost) for found in (first, second, third)] == [(1, 0)] * 3
        assert [found.nbytes for found in (first, second, third)] == [16, 16, 2_400_000]
        assert first.counts.mirror.ns > 0 and sum(first.counts.mirror.counts) == 1
        assert [found.counts.kept for found in (first, second, third)] == [{}, {"different": 1}, {}]
        output = second.counts.outputs["OUTPUT0"]
        assert (output.faults, output.max_absolute) == ({"values": 1}, 0.5)
        assert output.first is not None and output.first.index == (1,)
    with RecordingReader(path) as reader:
        (kept,) = reader
    assert kept.mirrored is not None
    assert kept.mirrored.responses[0].outputs[0].numpy().tolist() == [1.0, 2.0]


async def test_a_failure_of_the_other_model_is_a_finding() -> None:
    async with judging(config("127.0.0.1:1")) as asker:
        found = await asker.found(record(1.0))
    assert (found.lost, found.counts.different) == (0, 1)
    assert found.counts.failures["failed"].last.startswith(ErrorCode.UNAVAILABLE.name)


async def test_a_process_that_dies_is_started_again(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # longer than a busy machine takes to start it, and to end it
    monkeypatch.setattr(processes, "_RESTART_SECS", 600.0)
    monkeypatch.setattr(processes, "_END_SECS", 60.0)
    process = JudgeProcess(config(url))
    asker = Asker(process.judge_of(1))
    assert (await asker.found(record(1.0))).counts.equal == 1
    assert process._process is not None
    first = process._process.pid
    # it hangs, so that what is asked is under way when it dies
    os.kill(first, signal.SIGSTOP)
    asking = asyncio.ensure_future(asker.found(record(1.0)))
    await asyncio.sleep(0.05)
    os.kill(first, signal.SIGKILL)
    assert await asking == Findings(count=1, nbytes=8, lost=1)
    assert [line.levelname for line in caplog.records] == ["ERROR"]
    assert (await asker.found(record(1.0))).lost == 1  # not at once
    monkeypatch.setattr(processes, "_RESTART_SECS", 0.0)
    assert (await asker.found(record(1.0))).counts.equal == 1
    assert process._process.pid != first
    await asker.judge.close()
    assert process._process.returncode == 0


async def test_a_start_that_fails_for_any_reason_is_repeated(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(processes, "_RESTART_SECS", 0.0)
    async with judging(config(url)) as asker:
        with monkeypatch.context() as broken:
            broken.setattr(interpreter, "_PROGRAM", "{absent}")  # KeyError
            await asker.judge.start()
            gc.collect()  # a socket that nobody closed is a warning
        assert caplog.messages == ["mirror process failed to start"]
        assert (await asker.found(record(1.0))).counts.equal == 1


async def test_a_mirror_drops_what_cannot_be_judged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(interpreter, "_PROGRAM", "raise SystemExit(3)")
    settings = config("127.0.0.1:1").routes[1].mirror
    assert settings is not None
    mirror = Mirror(settings, JudgeProcess(config("127.0.0.1:1")).judge_of(1), "route")
    await mirror.start()
    for _ in range(3):
        mirror.on_response(answered(requested(1.0), Tensor.from_numpy("OUTPUT0", np.ones(1, np.float32))))
        await settled(mirror)
    assert (mirror.report.dropped, mirror.report.counts.compared) == ({"error": 3}, 0)
    assert len(caplog.records) == 1
    await mirror.close()


async def test_where_mirrors_are_judged(url: str) -> None:
    document = {
        "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
        "models": {
            "here": {"backend": "identity", "signature": SIGNATURE},
            "too": {"backend": "identity", "signature": SIGNATURE},
            "there": {"upstream": "far", "remote_model": "identity"},
        },
        "upstreams": {"far": {"dialect": "oip", "transport": "http", "urls": [url]}},
        "routes": [
            {"match": {"model": "a"}, "to": "here", "mirror": {"to": "too"}},
            {"match": {"model": "b"}, "to": "here"},
            {"match": {"model": "a", "version": "1"}, "to": "here", "mirror": {"to": "there"}},
        ],
    }
    assembly = assemble(parse(yaml.safe_dump(document)), Loaded())
    kinds = [type(mirror._judge).__name__ for mirror in assembly.mirrors]
    assert kinds == ["LocalJudge", "RemoteJudge"]
    assert [mirror.report.name for mirror in assembly.mirrors] == ["a", "a (route 3)"]
    assert [route.mirror for route in assembly.service.router.routes] == [
        assembly.mirrors[0],
        None,
        assembly.mirrors[1],
    ]
    assert assembly.sources.reports["mirror"]()["different"] is False
    assert any(
        family.name.startswith("interlingua_mirror") for tell in assembly.sources.metrics for family in tell()
    )
    await assembly.close()


SIGNATURE = {
    "inputs": [{"name": "I", "datatype": "FP32", "shape": [-1]}],
    "outputs": [{"name": "I", "datatype": "FP32", "shape": [-1]}],
}

texts = st.text(max_size=5)
parameters = st.dictionaries(texts, st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | texts)
tensors = st.builds(
    lambda name, values: Tensor.from_numpy(name, np.array(values, np.int64)),
    texts,
    st.lists(st.integers(-9, 9), max_size=6),
)
several = st.lists(tensors, max_size=3).map(tuple)
errors = st.none() | st.builds(
    lambda message, origin, retryable: InferenceError(
        ErrorCode.UNAVAILABLE, message, origin=origin, retryable=retryable, details={"a": "b"}
    ),
    texts,
    texts,
    st.booleans(),
)
placements = st.none() | st.builds(SharedMemoryRef, texts, st.integers(0, 9), st.integers(0, 9))
wanted = st.builds(RequestedOutput, texts, st.integers(0, 5), placements, parameters)
requests = st.builds(
    InferRequest,
    texts,
    several,
    st.none() | st.lists(wanted, max_size=2).map(tuple),
    texts,
    texts,
    parameters,
    st.none() | st.builds(Sequence, st.integers(1) | texts, st.booleans(), st.booleans()),
    st.integers(0, 9),
    st.integers(0, 9),
    st.builds(
        Context,
        traceparent=texts,
        tracestate=texts,
        timings=st.dictionaries(texts, st.integers(0)),
        cancel=st.just(CancelToken()),
    ),
    # a grps server gets the copy in the form of the request: gmaps, tensors without names
    wire_form=st.none() | st.builds(WireForm, st.sampled_from(Kind), st.dictionaries(texts, texts)),
    # how many answers the copy may get is what the request's caller takes
    answers=st.sampled_from(["one", "only", "many"]),
)
responses = st.builds(InferResponse, texts, several, texts, texts, parameters, st.booleans(), errors)
answers = st.builds(
    RecordedAnswer, texts, st.lists(responses, max_size=3).map(tuple), errors, st.integers(0), st.booleans()
)
records = st.builds(
    Record,
    *(st.integers(0), requests, texts, texts, answers),
    streamed=st.booleans(),
    max_batch_size=st.none() | st.integers(0),
)
copies = st.builds(Copy, records, st.integers(0), st.floats(0))


@given(st.lists(st.tuples(st.integers(0, 9), copies), max_size=3), st.sampled_from([0, 16, 1 << 16]))
def test_copies_arrive_as_they_were(given_: list[tuple[int, Copy]], large: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "_LARGE", large)
        frame = b"".join(wire.pack_copies(given_))
    marshalled, behind = wire.COPIES.unpack_from(frame)
    body = frame[wire.COPIES.size :]
    assert len(body) == marshalled + behind
    found = wire.read_copies(body, marshalled)
    # with text for what has no equality, and NaN
    assert repr([_shown(*each) for each in found]) == repr([_shown(*each) for each in given_])


def _shown(mirror: int, copy: Copy) -> list[Any]:
    """Everything of ``copy`` that has to arrive."""
    record = copy.record
    request, answer = record.request, record.answer
    context = request.context
    failed = [answer.error, *(response.error for response in answer.responses)]
    held = [*request.inputs, *(output for response in answer.responses for output in response.outputs)]
    return [
        mirror,
        replace(copy, record=None),  # type: ignore[arg-type]
        (record.began_unix_ns, record.dialect, record.listener, record.streamed, record.max_batch_size),
        replace(request, inputs=(), context=None),  # type: ignore[arg-type]
        request.wire_form,
        (context.traceparent, context.tracestate, context.timings),
        replace(answer, responses=(), error=None),
        [replace(response, outputs=(), error=None) for response in answer.responses],
        [
            error and (error.code, error.message, error.origin, error.retryable, error.details)
            for error in failed
        ],
        [(tensor.name, tensor.datatype, tensor.shape, bytes(tensor.view)) for tensor in held],
        (len(request.inputs), [len(response.outputs) for response in answer.responses]),
    ]


async def test_one_copy_that_has_no_form_is_lost_alone(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with judging(config(url)) as asker:
        await asker.judge.start()
        broken = record(1.0)
        broken.request.parameters = {"a": object()}  # type: ignore[dict-item]
        asker.submit(broken)
        lost, found = await asker.found(record(1.0)), await asker.heard.get()
    assert (lost.count, lost.lost) == (1, 1)
    assert (found.count, found.lost, found.counts.equal) == (1, 0, 1)
    assert caplog.messages == ["mirror copy not sent"]


@given(st.lists(st.dictionaries(st.integers(0, 3), st.builds(Findings, count=st.integers(0)))), st.data())
def test_findings_arrive_however_they_are_cut(given_: list[dict[int, Findings]], data: st.DataObject) -> None:
    stream = b"".join(map(wire.pack_findings, given_))
    reader = wire.FindingsReader()
    found: list[Mapping[int, Findings]] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:size])
        stream = stream[size:]
    assert found == given_
