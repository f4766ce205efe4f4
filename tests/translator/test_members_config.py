"""A members file in the configuration: its faults, what it adds, and what a check says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from interlingua.runtime.upstream.pool import Member
from interlingua.translator.admin import upstreams as reports
from interlingua.translator.cli import main
from interlingua.translator.config import ConfigError, parse
from tests.translator.test_assembly import assembled


def document(**options: Any) -> dict[str, Any]:
    upstream = {"dialect": "oip", "transport": "http", **options}
    return {
        "listeners": [{"listen": "127.0.0.1:8000", "transport": "http"}],
        "upstreams": {"there": upstream},
        "models": {"m": {"upstream": "there"}},
    }


@pytest.fixture
def members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "members.json"
    path.write_text('["10.0.0.1:1", {"url": "http://10.0.0.2:1", "weight": 2, "zone": "west"}]')
    return path


def faults(**options: Any) -> list[str]:
    try:
        parse(json.dumps(document(**options)), "c.yaml")
    except ConfigError as error:
        return [line.removeprefix("c.yaml:1: ") for line in error.lines]
    return []


URLS = ["file:members.json"]


def test_faults(members: Path) -> None:
    assert faults(urls=URLS, zone="west", slow_start_secs=30) == []
    assert faults(urls=["file:none.json"]) == [
        "upstreams.there.urls[0]: 'none.json' cannot be read: No such file or directory"
    ]
    assert faults(urls=[*URLS, "a:1"]) == [
        "upstreams.there.urls: a members file must be the only entry: list the other servers in it"
    ]
    members.write_text('["a:1", {"url": "b:1", "weight": -2}]')
    assert faults(urls=URLS) == [
        "upstreams.there.urls[0]: 'members.json' [1].weight: must be a number above 0, at most 1000000"
    ]
    members.write_text('["127.0.0.1:8000"]')
    assert faults(urls=URLS) == ["models.m: loops through this server's own listeners: 'm' -> 'm'"]


async def test_the_servers_of_an_upstream(members: Path) -> None:
    there = {"dialect": "oip", "transport": "http", "urls": URLS, "zone": "west"}
    upstreams = assembled(upstreams={"there": there}, models={"m": {"upstream": "there"}}).upstreams
    found = reports.report(upstreams)["there"]["servers"]
    assert [(each["url"], each["weight"], each["zone"]) for each in found] == [
        ("10.0.0.1:1", 1.0, ""),
        ("http://10.0.0.2:1", 2.0, "west"),
    ]
    chosen = upstreams["there"].pool.choose(())
    assert isinstance(chosen, Member) and chosen.zone == "west"
    await upstreams["there"].close()


def test_a_check_lists_the_servers(members: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("c.yaml").write_text(json.dumps(document(urls=URLS)))
    assert main(["check", "-c", "c.yaml"]) == 0
    assert (
        "at the servers in members.json: 10.0.0.1:1, http://10.0.0.2:1 (weight 2, zone west)), model m there"
        in capsys.readouterr().out
    )


def test_a_probe_probes_the_servers(
    members: Path, capsys: pytest.CaptureFixture[str], unused_tcp_port: int
) -> None:
    urls = [f"127.0.0.1:{unused_tcp_port}", f"http://127.0.0.1:{unused_tcp_port}/base"]
    members.write_text(json.dumps(urls))
    Path("c.yaml").write_text(json.dumps(document(urls=URLS)))
    assert main(["check", "-c", "c.yaml", "--probe"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"c.yaml:1: upstreams.there.urls[0]: {url} cannot be reached: Connection refused" for url in urls
    ]
