"""The example file and docs/configuration.md, held against the schema."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlingua.protocols.section import Section
from interlingua.translator.config import load, parse
from interlingua.translator.config.sections import meanings, sections
from scripts.document_config import PAGE, rendered

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "config.example.yaml"


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def uncommented() -> str:
    """The example with its optional lines: those that begin with ``#`` and no space."""
    return re.sub(r"^( *)#(?! )", r"\1", EXAMPLE.read_text(), flags=re.MULTILINE)


def stated(value: Any) -> Iterator[tuple[type[Section], str, Any]]:
    """Every option that a configuration states, with its section and its value."""
    if isinstance(value, Section):
        for name in value.model_fields_set:
            yield type(value), name, getattr(value, name)
            yield from stated(getattr(value, name))
    elif isinstance(value, dict | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from stated(inner)


def test_the_example_starts_unchanged() -> None:
    config = load(EXAMPLE)
    assert {listener.transport for listener in config.listeners} == {"http", "grpc", "brpc", "tcp"}
    assert set(config.listeners[0].dialects) >= {"oip", "graphpipe"}
    assert not config.upstreams


def test_the_commented_options_are_valid_too() -> None:
    config = parse(uncommented())
    assert config.models["resnet50"].upstream == "triton"
    assert config.upstreams["triton"].urls == ("127.0.0.1:18001",)
    assert config.routes[0].to == "resnet50"


def test_every_option_is_in_the_example_with_its_default() -> None:
    shown = list(stated(parse(uncommented())))
    assert {(section, name) for section, name, _ in shown} == {
        (section, name) for section in sections().values() for name in section.model_fields
    }
    for section in sections().values():
        for name, field in section.model_fields.items():
            # a default of None, or made by a factory, depends on other options: there is no value to show
            if field.default is not None and not field.is_required() and field.default_factory is None:
                values = [value for *option, value in shown if option == [section, name]]
                assert field.default in values or isinstance(field.default, dict | tuple), (section, name)


def test_the_documentation_has_the_schema_of_now() -> None:
    page = PAGE.read_text()
    assert page == rendered(page), "run: python scripts/document_config.py"
    assert set(re.findall(r"<!-- table: (\w+) -->", page)) == set(sections())


def test_the_tables_state_types_defaults_and_meanings() -> None:
    page = PAGE.read_text()
    assert "| `drain_secs` | number | `5.0` | After the first signal" in page
    assert "| `log_level` | `debug`, `info`, `warning`, `error` | `info` |" in page
    assert "| `listeners` | list of [listener](#listener) | required |" in page
    assert '| `load` | text or list of text | `"*"` |' in page
    for section in sections().values():
        assert all(meanings(section)[name].strip() for name in section.model_fields), section


def test_the_documented_errors_are_the_real_ones() -> None:
    lines = ['  - {listen: ":0", transport: htpt}', "models:", "  resnet50: {upstream: tritn}"]
    upstreams = 'upstreams: {triton: {dialect: oip, transport: http, urls: ["a:1"]}}'
    with pytest.raises(Exception, match="htpt") as raised:
        parse("\n".join(["# a comment", "listeners:", *lines, upstreams]), "bad.yaml")
    for line in str(raised.value).splitlines():
        assert f"  {line}\n" in PAGE.read_text()
