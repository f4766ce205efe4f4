"""The pages of docs/conformance say what the kit finds at the servers of other projects."""

from __future__ import annotations

import re

import pytest

from tests.conformance.oip_client import Server
from tests.peers.conformance_pages import PAGES, page

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


@pytest.mark.parametrize("name", ["triton", "mlserver", "kserve"])
def test_the_page_is_right(request: pytest.FixtureRequest, name: str) -> None:
    server: Server = request.getfixturevalue(name)
    said = broken((PAGES / f"{name}.md").read_text())
    assert set(said) == {"oip over http", "oip over grpc"}
    assert broken(page(name, server).decode()) == said
