"""Log lines with text of clients: one line each, and nothing that a terminal obeys."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from interlingua.translator.logs import setup as logs

HOSTILE = ["\n", "\r", "\r\n", "\x1b[2J", "\u2028", "\u2029", "\0", "\x7f", "\x85", "\x9b2J", "\u202e", "\ud800", "\U000e0001"]  # fmt: skip
FORGED = "12:00:00 info    all is well"

log = logging.getLogger("interlingua.test")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def written(
    capsys: pytest.CaptureFixture[str], form: Literal["text", "json"], *args: Any, **more: Any
) -> str:
    logs.set_up("info", form)
    log.warning(*args, **more)
    shown = capsys.readouterr().err
    assert shown.endswith("\n")
    return shown[:-1]


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("place", ["message", "argument", "field", "key", "within a field"])
def test_text_lines_are_escaped(capsys: pytest.CaptureFixture[str], hostile: str, place: str) -> None:
    text = f"model{hostile}{FORGED}"
    line = {
        "message": lambda: written(capsys, "text", text),
        "argument": lambda: written(capsys, "text", "failed: %s", text),
        "field": lambda: written(capsys, "text", "failed", extra={"facts": {"model": text}}),
        "key": lambda: written(capsys, "text", "failed", extra={"facts": {text: 1}}),
        "within a field": lambda: written(
            capsys, "text", "failed", extra={"facts": {"error": ValueError(text)}}
        ),
    }[place]()
    assert line.isprintable()
    assert ascii(hostile)[1:-1] in line and FORGED in line


@pytest.mark.parametrize("hostile", HOSTILE)
def test_json_lines_are_escaped(capsys: pytest.CaptureFixture[str], hostile: str) -> None:
    text = f"model{hostile}{FORGED}"
    line = written(capsys, "json", text, extra={"facts": {"model": text}})
    assert line.isprintable()
    document = json.loads(line)
    assert document["event"] == document["model"] == text


@pytest.mark.parametrize("hostile", HOSTILE)
def test_exceptions_cannot_forge_a_line(capsys: pytest.CaptureFixture[str], hostile: str) -> None:
    try:
        raise ValueError(f"no model{hostile}{FORGED}")
    except ValueError:
        first, *trace = written(capsys, "text", "failed", exc_info=True).split("\n")
    assert first.endswith("failed") and trace
    assert all(each.isprintable() and each.startswith("  ") for each in trace)


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://ann:s3cr3t@host:1/v2 refused", "https://[redacted]@host:1/v2 refused"),
        ("https://s3cr3t@host/ refused", "https://[redacted]@host/ refused"),
        ("Authorization: Bearer s3cr3t.x-y_z==", "Authorization: Bearer [redacted]"),
        ("{'authorization': 'Basic czNjcjN0OnM='}", "{'authorization': 'Basic [redacted]'}"),
        ("no key bearer s3cr3ts3cr3t here", "no key bearer [redacted] here"),
        ("x-api-key=s3cr3t, x=1", "x-api-key=[redacted], x=1"),
        ("POST /v2?token=s3cr3t&x=1", "POST /v2?token=[redacted]&x=1"),
        ("password: s3cr3t", "password: [redacted]"),
    ],
)
def test_lines_have_no_credentials(
    capsys: pytest.CaptureFixture[str], form: Literal["text", "json"], text: str, shown: str
) -> None:
    try:
        raise ValueError(text)
    except ValueError as error:
        facts = {"reason": error, "list": [text], "field": text}
        line = written(capsys, form, "failed: %s", text, exc_info=True, extra={"facts": facts})
    assert "s3cr3t" not in line and "czNjcjN0" not in line
    assert line.count(shown) == 5


@pytest.mark.parametrize(
    "text",
    [
        "unexpected token 'x' at 3",
        "basic auth",
        "http://host:1/path?x=a@b",
        "a:b@c",
        "the token of bearer x is old",
    ],
)
def test_what_is_no_credential_stays(capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert written(capsys, "text", text).endswith(f"warning {text}")


def test_long_lines_of_json_are_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    facts = {"names": ["é" * 100] * 100, "reason": "begin" + "x" * 9000 + "end", "count": 3}
    line = written(capsys, "json", "failed", extra={"facts": facts})
    assert len(line.encode()) < 4096
    found = json.loads(line)
    assert (found["event"], found["count"]) == ("failed", 3)
    assert found["reason"].startswith("beginx") and found["reason"].endswith("xend")


def test_usual_text_stays(capsys: pytest.CaptureFixture[str]) -> None:
    line = written(capsys, "text", "loaded", extra={"facts": {"model": "modèle 模型", "count": 3}})
    assert line.endswith(' warning loaded model="modèle 模型" count=3')


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a result=allowed identity=admin", '"a result=allowed identity=admin"'),
        ('a" result="allowed', r'"a\" result=\"allowed"'),
        ('a\\" result=allowed', r'"a\\\" result=allowed"'),
        ("a\n result=allowed", r'"a\n result=allowed"'),
        ("it's", '"it\'s"'),
        ("", ""),
        ("org/name-1.5", "org/name-1.5"),
    ],
)
def test_a_value_forges_no_field(capsys: pytest.CaptureFixture[str], name: str, shown: str) -> None:
    line = written(
        capsys, "text", "privileged operation", extra={"facts": {"model": name, "result": "refused"}}
    )
    assert line.endswith(f" warning privileged operation model={shown} result=refused")
    assert dict(field.split("=", 1) for field in shlex.split(line)[4:])["result"] == "refused"
