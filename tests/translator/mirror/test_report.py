"""What a mirror has found, as JSON, as metrics, as a table, and by the command."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from interlingua.schemas import ErrorCode, InferenceError, InferResponse, Tensor
from interlingua.translator.admin.metrics import exposition
from interlingua.translator.cli import main
from interlingua.translator.diff import Tolerance, compare_answers
from interlingua.translator.mirror import MirrorReport, families, reports
from interlingua.translator.mirror import report as reporting
from interlingua.translator.mirror.comparison import Comparison
from interlingua.translator.mirror.report import Counts, Dropped
from interlingua.translator.mirror.table import as_text
from interlingua.translator.recording.record import Record, RecordedAnswer
from tests.translator.mirror.mirrored import answered, request, tensor


def add(report: MirrorReport, *outputs: Tensor, right: tuple[Tensor, ...] = (), **more: Any) -> None:
    """Count in a request that was answered with ``right`` and by the mirror with ``outputs``."""
    record = Record.of(answered(request(1.0, id=more.pop("id", "")), *(right or (tensor(1.0),))))
    error = more.pop("error", None)
    answer = RecordedAnswer("other", (InferResponse("other", outputs),) if outputs else (), error)
    diff = compare_answers(record.answer, answer, Tolerance(report.rtol, report.atol))
    report.counts.add(record, Comparison(diff, error is not None, 3_000_000, **more))


@pytest.fixture
def report() -> MirrorReport:
    """One equal answer, three that differ, each in another way, and some that were dropped."""
    report = MirrorReport("digits", "digits_v2", 10.0, 1e-5, 1e-8)
    add(report, tensor(1.0))
    add(report, tensor(1.5), id="a\x1b[31m")
    add(report, tensor(3.0), id="b", kept="different")
    add(report, tensor(1.0), tensor(1.0, name="more"))
    add(report, error=InferenceError(ErrorCode.UNAVAILABLE, "gone"))
    report.count_dropped(Dropped.QUEUE, 3)
    return report


def test_counts_and_the_first_and_worst_of_each_output(report: MirrorReport) -> None:
    found = orjson.loads(orjson.dumps(reports([report])))
    assert found["different"] is True
    (mirror,) = found["mirrors"]
    assert [mirror[key] for key in ("compared", "equal", "different")] == [5, 1, 4]
    assert mirror["dropped"] == {"queue": 3}
    assert mirror["failures"] == {"failed": {"count": 1, "last": "UNAVAILABLE: gone"}}
    out = mirror["outputs"]["out"]
    assert [out[key] for key in ("compared", "different", "max_absolute", "max_relative")] == [4, 2, 2.0, 2.0]
    assert out["first"]["request_id"].startswith("a") and out["first"]["number"] == 2
    assert out["worst"]["request_id"] == "b" and out["worst"]["actual"] == "3.0"
    assert mirror["outputs"]["more"]["faults"] == {"extra": 1}
    assert mirror["latency_ms"]["primary"]["count"] == 5
    assert mirror["latency_ms"]["mirror"]["mean"] == 3.0


def test_the_worst_example_has_both_answers(report: MirrorReport) -> None:
    out, more = (
        orjson.loads(orjson.dumps(reports([report])))["mirrors"][0]["outputs"][name]
        for name in ("out", "more")
    )
    shape = {"datatype": "FP32", "shape": [1], "elements": 1}
    assert out["worst"]["answers"] == {
        "expected": {**shape, "data": [1.0]},
        "actual": {**shape, "data": [3.0]},
    }
    assert "answers" not in out["first"]
    assert more["worst"]["answers"] == {"expected": None, "actual": {**shape, "data": [1.0]}}


@pytest.mark.parametrize(
    ("right", "count", "shown"),
    [
        (np.arange(5000, dtype=np.int64), 1000, [0, 1, 2]),
        (np.array([2**60, -1, 0]), 3, [str(2**60), -1, 0]),
        (np.array([np.nan, -np.inf, 1.5]), 3, ["nan", "-inf", 1.5]),
        (np.array([b"a", b"\xff", b""], object), 3, ["a", "\ufffd", ""]),
        (np.array([b"x" * 9000, b"y" * 9000], object), 1, ["x" * 9000]),
    ],
)
def test_an_answer_is_whole_up_to_a_limit(right: Any, count: int, shown: list[Any]) -> None:
    report = MirrorReport("m", "other", 100.0, 0.0, 0.0)
    add(report, tensor(1.0), right=(Tensor.from_numpy("out", right),))
    worst = orjson.loads(orjson.dumps(reports([report])))["mirrors"][0]["outputs"]["out"]["worst"]
    expected = worst["answers"]["expected"]
    assert (expected["elements"], len(expected["data"])) == (right.size, count)
    assert expected["data"][:3] == shown


def test_nothing_that_differs() -> None:
    report = MirrorReport("m", "other", 100.0, 0.0, 0.0)
    assert reports([]) == {"different": False, "mirrors": []}
    assert reports([report])["different"] is False
    assert "0 compared" in as_text(orjson.loads(orjson.dumps(reports([report]))))


def test_errors_without_end_fit_into_json() -> None:
    report = MirrorReport("m", "other", 100.0, 0.0, 0.0)
    largest = Tensor.from_numpy("out", np.array([1e308, 1.0, np.nan, np.inf]))
    add(report, Tensor.from_numpy("out", np.array([-1e308, 1e-320, 1.0, 1.0])), right=(largest,))
    out = json.loads(orjson.dumps(reports([report])))["mirrors"][0]["outputs"]["out"]
    assert out["nonfinite"] == 2
    assert out["max_absolute"] > 1e308


def test_outputs_with_any_number_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "_MOST_OUTPUTS", 2)
    report = MirrorReport("m", "other", 100.0, 0.0, 0.0)
    for number in range(5):
        add(report, tensor(1.0), tensor(1.0, name=f"new{number}"))
    assert list(report.counts.outputs) == ["out", "new0", "(others)"]
    assert report.counts.outputs["(others)"].different == 4


def test_metrics(report: MirrorReport) -> None:
    lines = exposition(families([report])).decode().splitlines()
    labels = 'mirror="digits",to="digits_v2"'
    for line in (
        f'interlingua_mirror_requests_total{{{labels},result="different"}} 4',
        f'interlingua_mirror_dropped_total{{{labels},reason="queue"}} 3',
        f'interlingua_mirror_failures_total{{{labels},kind="failed"}} 1',
        f'interlingua_mirror_output_differences_total{{{labels},output="out",fault="values"}} 2',
        f'interlingua_mirror_output_max_absolute_error{{{labels},output="out"}} 2.0',
        f'interlingua_mirror_latency_seconds_count{{{labels},side="primary"}} 5',
        f'interlingua_mirror_latency_seconds_sum{{{labels},side="mirror"}} 0.012',
        f"interlingua_mirror_queue_requests{{{labels}}} 0",
    ):
        assert line in lines
    assert not list(families([]))


def test_the_table(report: MirrorReport) -> None:
    text = as_text(orjson.loads(orjson.dumps(reports([report]))))
    lines = text.splitlines()
    assert lines[0] == "digits, copies to digits_v2: 5 compared, 1 equal, 4 different"
    assert "  dropped: 3 queue" in lines
    assert "  failed: 1, the last: UNAVAILABLE: gone" in lines
    (row,) = [line for line in lines if line.startswith("  out ")]
    assert row.split()[1:5] == ["4", "2", "2", "2"]
    assert row.endswith("values 2; request 'a\\x1b[31m', at [0], expected 1.0, got 1.5")
    assert "\x1b" not in text


# --- the command


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    try:
        code = main(["mirror", "report", *argv])
    except SystemExit as end:
        code = int(end.code or 0)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_a_saved_report(report: MirrorReport, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(orjson.dumps(reports([report])))
    code, shown, _ = run(capsys, "--file", str(path))
    assert (code, shown) == (1, as_text(orjson.loads(path.read_bytes())))
    code, shown, _ = run(capsys, "--file", str(path), "--json")
    assert (code, orjson.loads(shown)) == (1, orjson.loads(path.read_bytes()))
    path.write_bytes(orjson.dumps(reports([])))
    assert run(capsys, "--file", str(path)) == (0, "no mirrors\n", "")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"mirrors": [1]}', '{"mirrors": [{"name": 1}]}', "null"])
def test_what_is_no_report(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    code, shown, error = run(capsys, "--file", str(path))
    assert (code, shown) == (2, "")
    assert error.startswith("interlingua mirror: not a mirror report")


@pytest.fixture
def admin(report: MirrorReport) -> Iterator[str]:
    """The address of a server that has a report at ``/mirror``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/mirror" else 404)
            self.end_headers()
            self.wfile.write(orjson.dumps(reports([report])))

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_report_of_a_running_server(
    report: MirrorReport, admin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown, _ = run(capsys, "--url", admin, "--json")
    assert (code, orjson.loads(shown)) == (1, orjson.loads(orjson.dumps(reports([report]))))
    code, _, error = run(capsys, "--url", f"http://{admin}/elsewhere")
    assert (code, error.split(":")[0]) == (1, "BAD_UPSTREAM")


def test_a_server_that_cannot_be_reached(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = run(capsys, "--url", "127.0.0.1:1")
    assert (code, error.split(":")[0]) == (1, "UNAVAILABLE")


def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys)[0] == 2
    assert run(capsys, "--file", str(tmp_path / "none"))[0] == 2
    assert run(capsys, "--url", "127.0.0.1")[0] == 2


def differing(value: float, kept: str = "") -> Counts:
    """What one comparison has found, of an answer that is ``value`` off."""
    one = MirrorReport("m", "other", 100.0, 0.0, 0.0)
    add(one, tensor(1.0 + value), id=str(value), kept=kept)
    return one.counts


def test_findings_added_up_in_pieces_are_those_of_all() -> None:
    values = [0.0, 0.5, 0.0, 2.0, 0.25]
    whole = MirrorReport("m", "other", 100.0, 0.0, 0.0)
    for value in values:
        add(whole, tensor(1.0 + value), id=str(value), kept="equal")
    gone = InferenceError(ErrorCode.UNAVAILABLE, "gone")
    add(whole, error=gone)
    for cut in range(len(values) + 1):
        pieces = Counts(), Counts()
        for number, value in enumerate(values):
            pieces[number >= cut].merge(differing(value, "equal"))
        last = MirrorReport("m", "other", 100.0, 0.0, 0.0)
        add(last, error=gone)
        total = Counts()
        for piece in (*pieces, last.counts):
            total.merge(piece)
        assert total == whole.counts
    out = whole.counts.outputs["out"]
    assert out.first is not None and out.worst is not None
    assert (out.first.number, out.worst.number) == (2, 4)
