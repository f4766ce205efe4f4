"""The user's page of the dialect tells every deliberate deviation, and why; and what the server claims."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from interlingua.protocols.oip.manifest import MANIFEST
from tests.conformance.oip_deviations import GRPC, HTTP, Deviation

PAGE = Path(__file__).parents[2] / "docs" / "dialects" / "oip.md"
HEADING = "## Where we differ from Triton\n"


def reported() -> dict[str, str]:
    """The reasons on the page, by what they are about."""
    section = PAGE.read_text(encoding="utf-8").split(HEADING)[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return {cells[0].strip(): cells[-1].strip() for cells in rows}


@pytest.mark.parametrize("row", [*HTTP, *GRPC], ids=lambda row: row.what)
def test_the_page_tells_it(row: Deviation) -> None:
    assert reported()[row.what] == row.why


def test_the_page_tells_the_extensions() -> None:
    listed = PAGE.read_text(encoding="utf-8").split("## Extensions\n")[1].partition("\n## ")[0]
    assert tuple(re.findall("`(.*?)`", listed)) == (*MANIFEST.extensions, "trace")
    (omitted,) = [what for what in reported() if what.startswith("the extensions ")]
    others = set(re.findall("`(.*?)`", omitted)) - {"tracing"}
    assert others == {"trace", "cuda_shared_memory"} and not others & set(MANIFEST.extensions)
