"""Options under former names: accepted with a warning for two minor versions, then an error that names the new one."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from interlingua.translator.cli import main
from interlingua.translator.config import ConfigError, load, parse, renamed
from interlingua.translator.config.loader import former_names, log_former_names
from interlingua.translator.config.renamed import Renamed

FILE = """\
server: {drain_time: 7.5}
listeners:
  - listen: "127.0.0.1:0"
    transport: http
    max_clients: 9
models:
  m: {backend: identity, about: old, signature: {inputs: [&x {name: x, datatype: FP32, shape: [1]}], outputs: [*x]}}
"""


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {
        "server.drain_time": Renamed("drain_secs", (0, 3)),
        "listeners.*.max_clients": Renamed("max_connections", (0, 3)),
        "models.*.about": Renamed("description", (0, 3)),
    }
    monkeypatch.setattr(renamed, "RENAMED", entries)
    monkeypatch.setattr(renamed, "REMOVED", {"server.magic": "upstreams have their own limits"})
    monkeypatch.setattr(renamed, "VERSION", (0, 3))


def refused(text: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        parse(text, "c.yaml")
    return raised.value.lines


@pytest.mark.parametrize("version", [(0, 3), (0, 4)])
def test_former_names_have_their_effect(version: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renamed, "VERSION", version)
    config = parse(FILE)
    assert config.server.drain_secs == 7.5
    assert config.listeners[0].max_connections == 9
    assert config.models["m"].description == "old"
    assert parse(FILE.replace("drain_time", "drain_secs")) == config


@pytest.mark.parametrize("version", [(0, 5), (1, 0)])
def test_later_they_are_errors(version: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renamed, "VERSION", version)
    assert refused(FILE) == [
        "c.yaml:1: server.drain_time: is named 'drain_secs' since version 0.3",
        "c.yaml:5: listeners[0].max_clients: is named 'max_connections' since version 0.3",
        "c.yaml:7: models.m.about: is named 'description' since version 0.3",
    ]


def test_a_removed_option_names_its_replacement() -> None:
    text = FILE.replace("drain_time: 7.5", "magic: 1")
    assert refused(text) == ["c.yaml:1: server.magic: has been removed: upstreams have their own limits"]


def test_both_names_contradict_each_other() -> None:
    text = FILE.replace("drain_time: 7.5", "drain_time: 7.5, drain_secs: 1.0")
    assert refused(text) == [
        "c.yaml:1: server.drain_time: is the former name of 'drain_secs', which is stated too"
    ]


def test_an_alias_has_the_option_too() -> None:
    text = FILE.replace("  - listen", "  - &a\n    listen", 1).replace("models:", "  - *a\nmodels:")
    assert [each.max_connections for each in parse(text).listeners] == [9, 9]


def test_errors_have_the_line_of_the_former_name() -> None:
    text = FILE.replace("max_clients: 9", "max_clients: 0")
    assert refused(text) == ["c.yaml:5: listeners[0].max_connections: must be at least 1, not the number 0"]


WARNINGS = [
    "1: server.drain_time: warning: is named 'drain_secs' since version 0.3, an error from version 0.5 on",
    "6: listeners[0].max_clients: warning: is named 'max_connections' since version 0.3, an error from version 0.5 on",
]


def test_warnings_of_check_and_of_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    path, other = tmp_path / "c.yaml", tmp_path / "listeners.yaml"
    path.write_text("server: {drain_time: 7.5}\ninclude: [listeners.yaml]\n")
    other.write_text(
        '# one\n# two\nlisteners:\n  - listen: "127.0.0.1:0"\n    transport: http\n    max_clients: 9\n'
    )
    expected = [f"{file}:{text}" for file, text in zip((path, other), WARNINGS, strict=True)]
    assert main(["check", "-c", str(path)]) == 0
    assert capsys.readouterr().err.splitlines() == expected
    with caplog.at_level(logging.WARNING):
        log_former_names(str(path))
    assert [(each.getMessage(), each.facts["reason"]) for each in caplog.records] == [  # type: ignore[attr-defined]
        ("option renamed", line) for line in expected
    ]


def test_a_file_that_cannot_be_read_again_has_none(tmp_path: Path) -> None:
    assert former_names(tmp_path / "none.yaml") == []
    (tmp_path / "c.yaml").write_text("- 1\n")
    assert former_names(tmp_path / "c.yaml") == []


def test_the_page_and_the_table_agree() -> None:
    """The policy: two minor versions."""
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    assert "accepted under its old name for two minor versions" in " ".join(page.split())
    assert renamed.ACCEPTED_MINORS == 2


def test_a_file_without_former_names(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text('listeners: [{listen: "127.0.0.1:0", transport: http}]\n')
    load(tmp_path / "c.yaml")
    assert former_names(tmp_path / "c.yaml") == []
