"""The JSON Schema that editors read, held against the files that the program accepts and refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from interlingua.translator.cli import main
from interlingua.translator.config.json_schema import json_schema
from interlingua.translator.config.sections import meanings, sections

ROOT = Path(__file__).parents[2]
LISTENERS = "listeners: [{listen: ':0', transport: http}]\n"


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    document = json_schema()
    Draft202012Validator.check_schema(document)
    return Draft202012Validator(document)


def errors(validator: Draft202012Validator, text: str) -> list[str]:
    return [error.json_path for error in validator.iter_errors(yaml.safe_load(text))]


@pytest.mark.parametrize(
    "path", [ROOT / "config.example.yaml", *sorted(ROOT.glob("examples/**/config*.yaml"))], ids=str
)
def test_files_that_the_program_accepts(path: Path, validator: Draft202012Validator) -> None:
    text = path.read_text()
    assert errors(validator, text) == []
    assert errors(validator, re.sub(r"^( *)#(?! )", r"\1", text, flags=re.MULTILINE)) == []


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (LISTENERS, []),
        ("include: [b.yaml]", []),
        (LISTENERS + "server: {drain_secs: '${DRAIN:-5}'}", []),
        (LISTENERS + "server: {drain_secs: five}", ["$.server.drain_secs"]),
        (LISTENERS + "server: {drain_seconds: 5}", ["$.server"]),
        ("listeners: [{listen: ':0', transport: htpt}]", ["$.listeners[0].transport"]),
        ("listeners: [{transport: http}]", ["$.listeners[0]"]),
        ("listeners: [{listen: ':0', transport: http, dialects: [opi]}]", ["$.listeners[0].dialects[0]"]),
        (LISTENERS + "server: {log_format: xml}", ["$.server.log_format"]),
        (LISTENERS + "server: {max_models: 0}", ["$.server.max_models"]),
    ],
)
def test_what_editors_mark(text: str, where: list[str], validator: Draft202012Validator) -> None:
    assert errors(validator, text) == where


def test_every_option_has_its_meaning() -> None:
    document = json_schema()
    for name, section in sections().items():
        options: dict[str, Any] = document.get("$defs", {}).get(name, document)["properties"]
        assert {option: each["description"] for option, each in options.items()} == meanings(section)


def test_the_command_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed) == json.loads(json.dumps(json_schema()))
    assert main(["schema", "-o", str(tmp_path / "file.json")]) == 0
    assert (tmp_path / "file.json").read_text() == printed
    assert main(["schema", "-o", str(tmp_path / "no" / "file.json")]) == 2
    assert "file.json' cannot be written: No such file" in capsys.readouterr().err
