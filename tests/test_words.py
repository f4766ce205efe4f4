"""Retired words in the pages: each phrase of the table has a term of the field as its replacement."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

RETIRED = {
    "who asks": "a caller that requests",
    "who asked": "the caller",
    "is told": "receives, gets, reads",
    "are told": "receive, get, read",
    "told": "reported",
    "whoever": "every caller that, any client that",
    "habits": "quirks",
    "lest": "so that … not",
    "anew": "again",
    "in vain": "without success",
    "all the same": "anyway, nevertheless",
    "stands in": "replaces, is in",
    "stands at": "is at",
    "passage": "passthrough",
    "passes unread": "passes through",
    "pass unread": "pass through",
    "row of nobody": "padding row",
    "nobody": "no client, no code",
    "somebody": "a client, a caller",
    "left out": "dropped, omitted, ejected",
    "leaves out": "omits",
    "leave out": "omit",
    "elsewhere": "remote, upstream",
    "given up": "reset, abandoned",
}
"""Phrase → replacement. Phrases match whole words in any case."""

_RETIRED = re.compile(
    r"\b(?:" + "|".join(re.escape(phrase).replace(r"\ ", r"\s+") for phrase in RETIRED) + r")\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"^ *```.*?^ *```$|`[^`]*`", re.MULTILINE | re.DOTALL)
_GENERATED = re.compile(r"<!-- table: .*?<!-- end -->", re.DOTALL)

# a run of the conformance kit, or of the matrix, writes these
_WRITTEN = {
    ROOT / "docs" / "fidelity.md",
    ROOT / "docs" / "dialects" / "oip-compatibility.md",
    *(ROOT / "docs" / "conformance").glob("*.md"),
}
# not edited yet
_PENDING = {
    *(ROOT / "docs" / "adr").glob("*.md"),
    *(ROOT / "docs" / "dialects" / f"{name}.md" for name in ("grps", "oip")),
}
PAGES = [
    page
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md")))
    if page not in _WRITTEN | _PENDING
]


def retired(text: str) -> list[str]:
    """Each retired phrase of the text, with its line and replacement."""

    def blank(match: re.Match[str]) -> str:
        return "\n" * match[0].count("\n")

    prose = _CODE.sub(blank, _GENERATED.sub(blank, text))
    return [
        f"{prose.count(chr(10), 0, match.start()) + 1}: {phrase!r}: say {RETIRED[phrase]!r}"
        for match in _RETIRED.finditer(prose)
        if (phrase := " ".join(match[0].lower().split()))
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_have_no_retired_words(page: Path) -> None:
    assert not retired(page.read_text())


@pytest.mark.parametrize("phrase", RETIRED)
def test_a_retired_word_is_found(phrase: str) -> None:
    assert retired(f"A line.\nA line that {phrase} breaks.")
    assert retired(phrase.replace(" ", "\n").title())
    assert not retired(f"`{phrase}`\n```\n{phrase}\n```\n<!-- table: X -->{phrase}<!-- end -->")


def test_parts_of_words_are_not_retired() -> None:
    assert not retired("He retold the bestiary of Cold Passages: habitats, `left out`, left_out.")
