"""The table of attacks runs against a real daemon, and would notice one that stalls or loses a request."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from benchmarks.hostile import page
from benchmarks.hostile.__main__ import failed
from benchmarks.hostile.measure import Latency, Row
from benchmarks.hostile.probe import Probe
from benchmarks.hostile.table import ATTACKS
from benchmarks.load import http

ROOT = Path(__file__).parents[2]


def test_an_attack_is_measured_beside_honest_clients() -> None:
    run = [sys.executable, "-m", "benchmarks.hostile", "--quick", "--json", "--engine", "native"]
    run += ["--only", "1,000 bRPC clients"]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode in (0, 1), done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["server"] == "native"
    assert row["lost"] == 0
    assert 0 < row["alone"]["median_ms"] <= row["alone"]["worst_ms"]
    assert 0 < row["honest"]["median_ms"] <= row["honest"]["worst_ms"]
    assert 0 < row["health"]["median_ms"] <= row["health"]["worst_ms"]
    assert 0 <= row["grown_mib"] < row["bound_mib"]
    assert "memory" not in row["misses"]
    assert "lost" not in row["misses"]


def test_the_names_of_attacks_differ() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)


@pytest.mark.parametrize(
    ("beside", "grown", "lost", "misses"),
    [
        (Latency(0.9, 249, 0), 10, 0, ()),
        (Latency(1.1, 10, 0), 10, 0, ("median",)),
        (Latency(0.5, 251, 0), 10, 0, ("worst",)),
        (Latency(0.5, 10, 0), 257, 1, ("memory", "lost")),
    ],
)
def test_a_row_says_what_it_misses(beside: Latency, grown: float, lost: int, misses: tuple[str, ...]) -> None:
    row = Row("attack", "native", Latency(0.5, 1, 0), beside, Latency(0.3, 2, 0), 300, grown, 256, lost)
    assert row.misses == misses


@pytest.mark.parametrize(
    ("server", "lost", "worst", "quick", "expected"),
    [
        ("native", 0, 300, True, False),
        ("native", 0, 300, False, True),
        ("native", 1, 10, True, True),
        ("nghttpd", 1, 300, False, False),
    ],
)
def test_a_busy_machine_does_not_fail_a_quick_run(
    server: str, lost: int, worst: float, quick: bool, expected: bool
) -> None:
    alone = Latency(0.5, 1, 0)
    row = Row("attack", server, alone, Latency(0.5, worst, 0), None, 300, 1, 256, lost)
    assert failed(row, quick) is expected


def test_a_slow_health_probe_counts() -> None:
    quick = Latency(0.5, 1, 0)
    assert Row("attack", "native", quick, quick, Latency(0.3, 300, 0), 1, 1, 256, 0).misses == ("worst",)


@contextmanager
def _server(stall_secs: float, dies: bool) -> Iterator[str]:
    """Answers every request but the third, which it answers late or never."""

    def serve() -> None:
        seen = 0
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client:
                while client.recv(1 << 16):
                    seen += 1
                    if seen == 3:
                        time.sleep(stall_secs)
                        if dies:
                            break
                    client.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


@pytest.mark.parametrize("dies", [False, True])
def test_a_stall_delays_every_request_that_was_due(dies: bool) -> None:
    def connect(closing: ExitStack) -> object:
        return http(address, "", b"GET / HTTP/1.1\r\n\r\n", closing)

    with _server(0.2, dies) as address:
        probe = Probe(connect)  # type: ignore[arg-type]
        time.sleep(0.3)
        found = probe.stop()
    assert found.lost == int(dies)
    if not dies:
        assert found.worst_ms >= 200
        assert found.median_ms > 20  # most of the requests were due meanwhile


def test_the_page_has_a_line_for_each_attack_and_shows_what_misses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, late = Latency(0.5, 1, 0), Latency(0.6, 300, 0)
    rows = [
        Row("flood", "native", alone, Latency(0.6, 2, 0), alone, 300, 10, 256, 0),
        Row("flood", "library", alone, late, late, 300, 300, 256, 2),
        Row("flood", "nghttpd", alone, alone, None, 20, 1, 256, 0),
        Row("bombs", "native", alone, Latency(1.1, 2, 0), late, 300, 10, 256, 0),
    ]
    copy = tmp_path / "page.md"
    copy.write_text("before\n<!-- table: hostile -->\n| old |\n<!-- end -->\nafter\n")
    monkeypatch.setattr(page, "PAGE", copy)
    page.write(rows)
    assert copy.read_text().splitlines() == [
        "before",
        "<!-- table: hostile -->",
        "",
        "| attack | honest ms | health ms | MiB | library: honest ms | health ms | MiB | nghttpd ms |",
        "|---|---|---|---|---|---|---|---|",
        "| flood | 0.60 / 2 | 0.50 / 1 | +10 | **0.60 / 300**, 2 lost | **0.60 / 300** | **+300** | 0.50 / 1 |",
        "| bombs | **1.10 / 2** | **0.60 / 300** | +10 |  |  |  |  |",
        "",
        "<!-- end -->",
        "after",
    ]


def test_the_committed_page_has_a_place_for_the_table() -> None:
    assert "<!-- table: hostile -->" in page.PAGE.read_text()
