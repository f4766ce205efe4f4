"""The audit log: who requested which privileged operation, and with which result."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import HttpRequest
from interlingua.schemas import Context, ErrorCode, Operation, ServerMetadata
from interlingua.translator.access.authorization import Authorization
from interlingua.translator.access.grants import read_grants
from interlingua.translator.access.refusals import CALLER_BURST
from interlingua.translator.logs import setup as logs
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router
from interlingua.translator.serving.settings import LogBook


@pytest.fixture
def audit(tmp_path: Path) -> Iterator[Path]:
    """The file of the audit log; the log of the process is as before at the end."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    path = tmp_path / "audit.log"
    logs.add_audit_file(str(path))
    yield path
    for handler in logs.AUDIT.handlers[:]:
        logs.AUDIT.removeHandler(handler)
        handler.close()
    logs.AUDIT.setLevel(logging.NOTSET)
    root.handlers[:] = before
    root.setLevel(level)


async def post(path: str, body: Any = None, peer: str = "127.0.0.1", **headers: str) -> int:
    service = Service(Router({}), ServerMetadata("s", "1"), log=LogBook(logs.settings("info"), logs.apply))
    handler = Pipeline(
        service,
        "0.0.0.0:8000",
        [DIALECTS["oip"].bindings["http"]],
        authorization=Authorization("0.0.0.0:8000", read_grants({"logging": ["local", "10.0.0.0/8"]})),
    ).handlers["http"]
    context = Context(peer=peer, headers=headers)
    data = b"" if body is None else orjson.dumps(body)
    request = HttpRequest("POST", path, "", headers, data, context=context)
    answer = handler.head(request) or await handler.serve(request)
    return int(answer.status)


def records(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["event"] for line in lines} == {"privileged operation"}
    unchanging = {"event", "time", "logger", "level"}
    return [{key: value for key, value in line.items() if key not in unchanging} for line in lines]


async def test_records(audit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("info", "json")
    assert await post("/v2/health/live") == 405
    assert await post("/v2/logging", {"log_info": False}, "10.1.2.3") == 200
    assert await post("/v2/repository/models/m/load", None, "10.1.2.3") == 403
    assert await post("/v2/repository/models/m/load") == 404
    assert await post("/v2/logging", {"log_info": False}, host="h", origin="http://evil.example") == 403
    where = {"listener": "0.0.0.0:8000", "dialect": "oip"}
    change = {"operation": "log_settings", "class": "logging", **where}
    load = {"operation": "model_load", "class": "control", "model": "m", **where}
    found = records(audit)
    reasons = [each.pop("reason", "") for each in found]
    assert found == [
        {**change, "result": "allowed", "caller": "10.1.2.3"},
        {**load, "result": "refused", "caller": "10.1.2.3"},
        {**load, "result": "failed", "caller": "127.0.0.1"},
        {**change, "result": "refused", "caller": "127.0.0.1"},
    ]
    assert "class 'control'" in reasons[1] and "unknown model" in reasons[2] and "other sites" in reasons[3]
    # the first operation hides other lines of the log, but not those of the audit
    shown = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert shown == ["privileged operation"] * 4


async def test_a_flood_of_refusals_leaves_few_records(audit: Path) -> None:
    pipeline = Pipeline(
        Service(Router({}), ServerMetadata("s", "1")),
        "0.0.0.0:8000",
        [DIALECTS["oip"].bindings["http"]],
        authorization=Authorization("0.0.0.0:8000"),
    )
    handler = pipeline.handlers["http"]

    async def load(peer: str) -> int:
        request = HttpRequest("POST", "/v2/repository/models/m/load", context=Context(peer=peer))
        return int((handler.head(request) or await handler.serve(request)).status)

    assert {await load("10.1.2.3") for _ in range(500)} == {403}
    assert await load("10.1.2.4") == 403
    assert await load("127.0.0.1") == 404  # a caller that is permitted, and fails
    found = records(audit)
    assert [each["result"] for each in found] == ["refused"] * (CALLER_BURST + 1) + ["failed"]
    assert [each.get("suppressed") for each in found[-3:]] == [None, 500 - CALLER_BURST, None]
    counted = pipeline.request_metrics["oip"].ended
    assert counted[Operation.MODEL_LOAD, ErrorCode.FORBIDDEN] == 501


async def test_the_file_is_rotated(audit: Path, tmp_path: Path) -> None:
    await post("/v2/logging", {})
    audit.rename(tmp_path / "audit.log.1")
    await post("/v2/logging", {})
    assert len(records(audit)) == len(records(tmp_path / "audit.log.1")) == 1


async def test_a_key_is_named_and_its_secret_is_not(audit: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("s3cret")
    grants = read_grants({"control": [f"key:x-admin={tmp_path / 'key'}"]})
    handler = Pipeline(
        Service(Router({}), ServerMetadata("s", "1")),
        "0.0.0.0:8000",
        [DIALECTS["oip"].bindings["http"]],
        authorization=Authorization("0.0.0.0:8000", grants),
    ).handlers["http"]
    for secret in ("s3cret", "guess"):
        headers = {"x-admin": secret}
        context = Context(peer="10.1.2.3", headers=headers)
        request = HttpRequest("POST", "/v2/repository/models/m/load", "", headers, b"", context=context)
        assert handler.head(request) or await handler.serve(request)
    assert [(each.get("key"), each["result"]) for each in records(audit)] == [
        ("x-admin", "failed"),
        (None, "refused"),
    ]
    assert "s3cret" not in audit.read_text() and "guess" not in audit.read_text()
