"""``interlingua top``: what it shows of a busy daemon, as a table, in place, and as JSON."""

from __future__ import annotations

import http.server
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import orjson
import pytest
import tritonclient.http

from interlingua.translator.cli import main
from interlingua.translator.cli.snapshots import DaemonReports, DaemonView, ModelRow, difference
from interlingua.translator.cli.top_table import BUSIEST, MODEL_COLUMNS, ModelOrder, table
from tests.e2e.daemon import Daemon
from tests.translator.cli.serving import ROOT

DEADLINE_SECS = 60


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon of two front ends that gets requests for ``digits``, one after the other, and has an upstream
    without a server."""
    daemon = Daemon.start(
        tmp_path_factory.mktemp("top"),
        {
            "server": {"workers": 2},
            "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
            "admin": {"listen": "127.0.0.1:0"},
            "model_repository": [{"path": str(ROOT / "examples" / "models"), "load": ["digits", "simple"]}],
            "models": {"far": {"upstream": "there", "required": False}},
            "upstreams": {"there": {"dialect": "oip", "transport": "http", "urls": ["127.0.0.1:1"]}},
        },
    )
    over = threading.Event()
    client = threading.Thread(target=send, args=(daemon.addresses[0], over))
    client.start()
    try:
        yield daemon
        over.set()
        client.join()
        assert daemon.stop() == 0
    finally:
        over.set()
        daemon.kill()


def send(address: str, over: threading.Event) -> None:
    image = np.load(ROOT / "examples" / "digits" / "seven.npy")
    given = tritonclient.http.InferInput("image", image.shape, "FP32")
    given.set_data_from_numpy(image)
    with tritonclient.http.InferenceServerClient(address) as client:
        while not over.wait(0.01):
            client.infer("digits", [given])


def test_as_json(busy: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    deadline = time.monotonic() + DEADLINE_SECS
    while True:
        assert main(["top", "--admin", busy.admin, "--interval-secs", "0.5", "--json"]) == 0
        found = orjson.loads(capsys.readouterr().out)
        if found["requests_per_sec"] or time.monotonic() > deadline:
            break
    first, *others = found["models"]
    assert (first["model"], first["state"], first["failed_per_sec"]) == ("digits", "READY", 0)
    assert first["requests_per_sec"] > 0
    assert 0 < first["p50_ms"] <= first["p95_ms"] <= first["p99_ms"]
    assert {each["model"]: each["p50_ms"] for each in others} == {"far": None, "simple": None}
    assert found["requests_per_sec"] == first["requests_per_sec"]
    (member,) = found["upstreams"]
    assert (member["upstream"], member["server"]) == ("there", "127.0.0.1:1")
    names = {each["process"] for each in found["processes"]}
    assert names == {"supervisor", "runtime", "front end 0", "front end 1"}


def test_one_table(busy: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    config = busy.process.args[busy.process.args.index("-c") + 1]  # type: ignore[index, union-attr]
    # the file has port 0: the address is not in it
    assert main(["top", "-c", str(config), "--once"]) == 2
    assert "state it with --admin" in capsys.readouterr().err
    assert main(["top", "--admin", busy.admin, "--interval-secs", "0.5", "--once"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    head, _, columns, first, *_ = shown.splitlines()
    assert re.match(
        r"interlingua \S+, up for \d+ s, (ready|not ready: .*), \d+\.\d requests/s, 0\.0 errors/s$", head
    )
    assert columns.split() == [
        "MODEL",
        "STATE",
        "REQ/S",
        "ERR/S",
        "P50",
        "MS",
        "P95",
        "MS",
        "P99",
        "MS",
        "QUEUE",
    ]
    assert first.split()[:2] == ["digits", "READY"]
    assert "front end 1" in shown


_INTERRUPTIBLE = """
import signal, sys
from interlingua.translator.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""


def shown_on(stdout: int, busy: Daemon, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    # a background job of a shell ignores SIGINT, and so would what the tests start then
    command = [sys.executable, "-c", _INTERRUPTIBLE, "top", "--admin", busy.admin, "--interval-secs", "0.2"]
    variables = {**os.environ, "TERM": "xterm", "LINES": "24"}
    return subprocess.Popen(command, cwd=ROOT, stdin=stdin, stdout=stdout, env=variables)


def test_in_place_on_a_terminal(busy: Daemon) -> None:
    ours, theirs = pty.openpty()
    with shown_on(theirs, busy) as process:
        os.close(theirs)
        shown = b""
        deadline = time.monotonic() + DEADLINE_SECS
        while shown.count(b"digits") < 2:
            assert time.monotonic() < deadline, shown
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
        except OSError:  # the terminal of a process that has ended
            pass
        assert process.wait(DEADLINE_SECS) == 130
    os.close(ours)
    text = shown.decode()
    # the alternate screen, without a cursor, long lines cut; every table from its top left; at the end the
    # former screen, cursor and lines
    assert text.startswith("\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H")
    assert text.count("\x1b[H") >= 2
    assert text.endswith("\x1b[?7h\x1b[?25h\x1b[?1049l")


def test_keys_sort_and_quit(busy: Daemon) -> None:
    ours, theirs = pty.openpty()
    with shown_on(theirs, busy, stdin=theirs) as process:
        os.close(theirs)
        shown = b""

        def until(text: bytes) -> None:
            deadline = time.monotonic() + DEADLINE_SECS
            nonlocal shown
            while text not in shown:
                assert time.monotonic() < deadline, shown
                shown += os.read(ours, 65536)

        until(b"sorted by REQ/S; s sort, r reverse, q quit")
        os.write(ours, b"s")
        until(b"sorted by ERR/S;")
        os.write(ours, b"r")
        until(b"sorted by ERR/S, reversed;")
        os.write(ours, b"q")
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
        except OSError:  # the terminal of a process that has ended
            pass
        assert process.wait(DEADLINE_SECS) == 0
    os.close(ours)
    assert shown.decode().endswith("\x1b[?7h\x1b[?25h\x1b[?1049l")


def test_orders() -> None:
    def row(name: str, requests: float, p50: float | None, waiting: int | None) -> ModelRow:
        return ModelRow(name, "READY", requests, 0.0, p50, p50, p50, waiting)

    rows = [row("b", 1.0, 5.0, 0), row("c", 2.0, None, None), row("a", 2.0, 1.0, 7)]

    def names(column: str, reverse: bool = False) -> str:
        return "".join(each.model for each in ModelOrder(column, reverse).of(rows))

    assert (names("REQ/S"), names("MODEL"), names("P99 MS"), names("QUEUE")) == ("acb", "abc", "bac", "abc")
    assert (names("MODEL", reverse=True), names("P50 MS", reverse=True)) == ("cba", "cab")
    order = ModelOrder()
    seen = [order.next_column() or order.column for _ in MODEL_COLUMNS]
    assert set(seen) == set(MODEL_COLUMNS) and order.column == BUSIEST


def test_one_after_the_other_in_a_pipe(busy: Daemon) -> None:
    with shown_on(subprocess.PIPE, busy) as process:
        assert process.stdout is not None
        tables = 0
        for line in process.stdout:
            assert b"\x1b" not in line
            tables += line.startswith(b"MODEL")
            if tables == 2:
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_SECS) == 130


def test_no_daemon(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--admin", "unix:nowhere.sock", "--once"]) == 1
    assert capsys.readouterr().err.startswith("interlingua top: no answer from the admin address: ")


@pytest.mark.parametrize("url", ["127.0.0.1:x", "127.0.0.1:99999", "http://[::1", "ftp://a", ""])
def test_no_address(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--admin", url, "--once"]) == 2
    assert f"'{url}' is not a URL such as http://127.0.0.1:8002" in capsys.readouterr().err


def test_no_file_of_authorities(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--admin", "https://127.0.0.1:1", "--ca", "nowhere.pem", "--once"]) == 2
    assert "'nowhere.pem' cannot be read as certificates: No such file" in capsys.readouterr().err


def test_a_daemon_that_ends_within_the_interval(capsys: pytest.CaptureFixture[str]) -> None:
    """Its last answer is cut short."""
    replies = iter([b"{}", b"{}", b"{}", b"{}", b"{}", b"", None])

    class Daemon(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if (body := next(replies)) is not None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            else:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Keep the output of the test clean."""

    with http.server.HTTPServer(("127.0.0.1", 0), Daemon) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"127.0.0.1:{server.server_port}"
        assert main(["top", "--admin", place, "--interval-secs", "0.01", "--once"]) == 1
        server.shutdown()
    assert capsys.readouterr().err.startswith("interlingua top: no answer from the admin address: ")


def test_another_server(busy: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--admin", busy.addresses[0], "--once"]) == 1
    assert "is that the admin address?" in capsys.readouterr().err


def version(requests: int, **counts: object) -> dict[str, object]:
    return {"version": "1", "state": "READY", "requests": requests, "failures": {}, "refused": 0, **counts}


BEFORE = DaemonReports(
    10.0,
    {"name": "server", "version": "1", "uptime_secs": 5.0},
    {"ready": True, "reasons": []},
    {"a": {"state": "READY", "versions": [version(10, waiting=0), version(5, waiting=3)]}},
    {"u": {"servers": [{"url": "x:1", "state": "in use", "requests": 4, "failures": 0, "outstanding": 2}]}},
    {},
    {"a": [10, 5, *[0] * 15]},
)


def later(**changes: object) -> DaemonView:
    """The view two seconds later, with other reports."""
    return difference(BEFORE, replace(BEFORE, secs=12.0, **changes))  # type: ignore[arg-type]


def test_rates_and_latencies_of_the_interval_alone() -> None:
    versions = [version(30, waiting=1, failures={"MODEL_FAILED": 4}), version(5, waiting=3, refused=2)]
    view = later(models={"a": {"state": "READY", "versions": versions}}, latencies={"a": [10, 25, *[0] * 15]})
    (row,) = view.models
    assert (row.requests_per_sec, row.failed_per_sec, row.waiting) == (13.0, 3.0, 4)
    # all twenty lie between 50 and 100 us
    assert (row.p50_ms, row.p99_ms) == (0.075, pytest.approx(0.0995, abs=0.001))


def test_counters_that_begin_again() -> None:
    """As those of a model that was reloaded."""
    view = later(models={"a": {"state": "READY", "versions": [version(1)]}}, latencies={"a": [1, *[0] * 16]})
    assert (view.models[0].requests_per_sec, view.models[0].p50_ms) == (0.0, None)


def test_a_model_that_has_just_come() -> None:
    view = later(models={**BEFORE.models, "b": {"state": "LOADING", "versions": []}})
    assert [(row.model, row.waiting) for row in view.models] == [("a", 3), ("b", None)]


def test_a_long_name_and_a_state() -> None:
    servers = [{"url": "x:1", "state": "ejected", "requests": 6, "failures": 1, "outstanding": 0}]
    view = later(models={"n" * 50: {"state": "READY", "versions": []}}, upstreams={"u": {"servers": servers}})
    lines = list(table(view))
    assert lines[1].startswith(f"{'n' * 39}… ")
    assert lines[-1].split() == ["u", "x:1", "ejected", "1.00", "0.50", "0"]


def test_the_text_of_the_metrics_is_read() -> None:
    from interlingua.translator.cli.snapshots import BUCKETS, _latencies

    name = 'a "b"'.replace('"', '\\"')
    lines = [
        f'interlingua_model_duration_seconds_bucket{{model="{name}",version="{version}",le="{at}"}} {at + 1}'
        for version in (1, 2)
        for at in range(BUCKETS)
    ]
    assert _latencies("\n".join(lines)) == {'a "b"': [2] * BUCKETS}
