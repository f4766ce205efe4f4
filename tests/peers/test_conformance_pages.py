"""The pages of docs/conformance say what the kit finds at the servers of other projects."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.peers import servers
from tests.peers.conformance_pages import PAGES, STARTS, page

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]


def broken(text: str) -> dict[str, set[str]]:
    """The rules that a page says to be broken, by its sections."""
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return {
        section.splitlines()[0]: {
            line.split("|")[1].strip()
            for line in section.splitlines()
            if line.startswith("|") and "**" in line
        }
        for section in sections
    }


@pytest.mark.parametrize("name", STARTS)
def test_the_page_is_right(tmp_path: Path, name: str) -> None:
    said = broken((PAGES / f"{name}.md").read_text())
    assert set(said) == {"oip over http", "oip over grpc"}
    try:
        found = fresh_page(name, tmp_path / "first")
    except servers.EndedError:
        # Triton 2.51 aborts now and then when it reads a malformed message.
        found = fresh_page(name, tmp_path / "second")
    assert broken(found) == said


def fresh_page(name: str, folder: Path) -> str:
    """The page of a server that has just started: Triton is not ready while it still unloads a model of
    another test. Raises ``EndedError``."""
    folder.mkdir()
    with STARTS[name](folder) as server:
        return page(name, server).decode()
