"""The process that judges for the daemon: the same verdicts as here, and what happens when it dies."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from runtime.repository import Loaded
from schemas import ErrorCode, InferRequest, Tensor
from tests.standins import oip_http_server
from tests.translator.mirror.mirrored import answered, request, settled
from translator.assembly import assemble
from translator.config import Config, parse
from translator.diff import AnswerDiff, Fault, TensorDiff
from translator.mirror import Mirror
from translator.mirror import process as processes
from translator.mirror.judge import Verdict
from translator.mirror.process import JudgeProcess, RemoteJudge
from translator.mirror.wire import VerdictReader, verdict_frame
from translator.recording.files import RecordingReader
from translator.recording.record import Record


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


async def verdict_of(judge: RemoteJudge, record: Record) -> Verdict | None:
    told: asyncio.Future[Verdict | None] = asyncio.get_running_loop().create_future()
    judge.submit(record, 30.0, told.set_result)
    return await told


async def equal(judge: RemoteJudge) -> bool:
    verdict = await verdict_of(judge, record(1.0))
    return verdict is not None and verdict.diff.equal


@asynccontextmanager
async def judging(settings: Config) -> AsyncIterator[RemoteJudge]:
    judge = JudgeProcess(settings).judge_of(1)
    try:
        yield judge
    finally:
        await judge.close()


def asked(*values: float) -> InferRequest:
    wanted = request(id="7")
    wanted.inputs = (Tensor.from_numpy("INPUT0", np.array(values, np.float32)),)
    return wanted


def record(*values: float, right: tuple[float, ...] = ()) -> Record:
    output = Tensor.from_numpy("OUTPUT0", np.array(right or values, np.float32))
    return Record.of(answered(asked(*values), output))


async def test_models_elsewhere_are_asked_by_the_process(url: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs"
    async with judging(config(url, keep={"path": str(path), "equal": 0})) as judge:
        await judge.start()
        large = tuple(float(number) for number in range(300_000))
        told = await asyncio.gather(
            verdict_of(judge, record(1.0, 2.0)),
            verdict_of(judge, record(1.0, 2.0, right=(1.0, 2.5))),
            verdict_of(judge, record(*large)),
        )
        some = [verdict for verdict in told if verdict is not None]
        assert [verdict.diff.equal for verdict in some] == [True, False, True]
        assert not any(verdict.failed for verdict in some)
        assert min(verdict.elapsed_ns for verdict in some) > 0
        assert [verdict.kept for verdict in some] == ["", "different", ""]
        (found,) = some[1].diff.outputs
        assert (found.name, found.fault, found.index, found.max_absolute) == (
            "OUTPUT0",
            Fault.VALUES,
            (1,),
            0.5,
        )
        assert some[2].diff.outputs[0].count == 300_000
    with RecordingReader(path) as reader:
        (kept,) = reader
    assert kept.mirrored is not None
    assert kept.mirrored.responses[0].outputs[0].numpy().tolist() == [1.0, 2.0]


async def test_a_failure_of_the_other_model_is_a_verdict() -> None:
    async with judging(config("127.0.0.1:1")) as judge:
        verdict = await verdict_of(judge, record(1.0))
    assert verdict is not None and verdict.failed
    ((kind, words),) = verdict.diff.failures
    assert kind == "failed"
    assert words.startswith(ErrorCode.UNAVAILABLE.name)


async def test_a_process_that_dies_is_started_again(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    process = JudgeProcess(config(url))
    judge = process.judge_of(1)
    assert await equal(judge)
    assert process._process is not None
    first = process._process.pid
    # it hangs, so that what is asked is under way when it dies
    os.kill(first, signal.SIGSTOP)
    asking = asyncio.ensure_future(verdict_of(judge, record(1.0)))
    await asyncio.sleep(0.05)
    os.kill(first, signal.SIGKILL)
    assert await asking is None
    assert [line.levelname for line in caplog.records] == ["ERROR"]
    assert await verdict_of(judge, record(1.0)) is None  # not at once
    monkeypatch.setattr(processes, "_AGAIN_SECS", 0.0)
    assert await equal(judge)
    assert process._process.pid != first
    await judge.close()
    assert process._process.returncode == 0


async def test_a_mirror_drops_what_cannot_be_judged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(processes, "_PROGRAM", "{root!r}\n{descriptor}\nraise SystemExit(3)")
    settings = config("127.0.0.1:1").routes[1].mirror
    assert settings is not None
    mirror = Mirror(settings, JudgeProcess(config("127.0.0.1:1")).judge_of(1), "route")
    await mirror.start()
    for _ in range(3):
        mirror.saw(answered(asked(1.0), Tensor.from_numpy("OUTPUT0", np.ones(1, np.float32))))
        await settled(mirror)
    assert (mirror.report.dropped, mirror.report.compared) == ({"error": 3}, 0)
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

diffs = st.builds(
    TensorDiff,
    st.text(),
    st.none() | st.sampled_from(Fault),
    st.integers(0, 2**62),
    max_absolute=st.integers(0, 2**64) | st.floats(0, allow_nan=False, allow_infinity=False),
    index=st.none() | st.lists(st.integers(0, 2**40)).map(tuple),
    actual=st.text(),
)
verdicts = st.builds(
    Verdict,
    st.builds(AnswerDiff, st.lists(diffs).map(tuple), st.lists(st.tuples(st.text(), st.text())).map(tuple)),
    st.booleans(),
    st.integers(0, 2**62),
    st.sampled_from(["", "equal"]),
)


@given(st.lists(st.none() | verdicts), st.data())
def test_verdicts_arrive_however_they_are_cut(given_: list[Verdict | None], data: st.DataObject) -> None:
    stream = b"".join(verdict_frame(number, verdict) for number, verdict in enumerate(given_))
    reader, found = VerdictReader(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:size])
        stream = stream[size:]
    assert found == list(enumerate(given_))


def test_a_verdict_has_no_more_than_its_wire() -> None:
    assert {field.name for field in dataclasses.fields(Verdict)} == {"diff", "failed", "elapsed_ns", "kept"}
    assert {field.name for field in dataclasses.fields(AnswerDiff)} == {"outputs", "failures"}
