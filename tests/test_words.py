"""Retired words in pages, docstrings and comments: each phrase has a term of the field as its replacement."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
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
    "let go of": "released, removed",
    "behind an upstream": "upstream, of an upstream",
    "no place for": "cannot carry",
    "nonsense": "an invalid response",
    "beside": "next to, with, besides",
    "heard": "received",
    "stand": "are",
    "stands": "is",
    "tell": "report, describe, show",
    "telling": "reporting, describing, showing",
    "tells": "reports, describes, shows",
    "whom": "which model, which server",
}
"""Phrase → replacement. Phrases match whole words in any case."""

RETIRED_IN_SOURCES = RETIRED | {
    "ask": "request, query, call",
    "asks": "requests, queries, calls",
    "asked": "requested, queried, called",
    "asking": "requesting, querying, calling",
    "but for": "except",
    "crowd": "connection set",
    "gives up": "abandons, cancels",
    "goes away": "disconnects",
    "gone away": "disconnected",
    "has gone": "is closed, was removed",
    "have gone": "are closed, were removed",
    "lets go of": "releases, removes",
    "nothing but": "only",
    "nowhere": "in no …",
    "says so": "reports it, declares it",
    "whichever": "any",
}
"""Those of docstrings and comments: pages may ask their readers."""


def _pattern(phrases: Mapping[str, str]) -> re.Pattern[str]:
    matching = (re.escape(phrase).replace(r"\ ", r"\s+") for phrase in sorted(phrases, key=len, reverse=True))
    return re.compile(rf"\b(?:{'|'.join(matching)})\b", re.IGNORECASE)


_RETIRED, _RETIRED_IN_SOURCES = _pattern(RETIRED), _pattern(RETIRED_IN_SOURCES)
_CODE = re.compile(r"^ *```.*?^ *```$|`[^`]*`", re.MULTILINE | re.DOTALL)
# the rules of the conformance kit are code, and in the recorded pages of docs/conformance
_GENERATED = re.compile(r"<!-- table: rules of the kit -->.*?<!-- end -->", re.DOTALL)

# a run of the conformance kit, or of the matrix, writes these
_WRITTEN = {
    ROOT / "docs" / "fidelity.md",
    ROOT / "docs" / "dialects" / "oip-compatibility.md",
    *(ROOT / "docs" / "conformance").glob("*.md"),
}
PAGES = [
    page
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md")))
    if page not in _WRITTEN
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
    assert not retired(
        f"`{phrase}`\n```\n{phrase}\n```\n<!-- table: rules of the kit -->{phrase}<!-- end -->"
    )


def test_parts_of_words_are_not_retired() -> None:
    assert not retired("He retold the bestiary of Cold Passages: habitats, `left out`, left_out.")


# --- code

SOURCES = [
    path
    for room in ("schemas", "protocols", "runtime", "translator")
    for path in sorted((ROOT / room).rglob("*.py"))
]


_LITERAL = re.compile(r"``.*?``|`[^`]*`", re.DOTALL)


def prose_of(source: str) -> Iterator[tuple[int, str]]:
    """Each docstring, of attributes too, and each comment of the source, with its line."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(ast.Constant(str(text))):
                yield node.lineno, text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def retired_in_prose(source: str) -> list[str]:
    """Each retired phrase in docstrings and comments, with its line and replacement."""
    return [
        f"{line + text.count(chr(10), 0, match.start())}: {phrase!r}: say {RETIRED_IN_SOURCES[phrase]!r}"
        for line, text in prose_of(source)
        for match in _RETIRED_IN_SOURCES.finditer(
            _LITERAL.sub(lambda code: re.sub(r"[^\n]", "`", code[0]), text)
        )
        if (phrase := " ".join(match[0].lower().split()))
    ]


def test_docstrings_and_comments_have_no_retired_words() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{what}" for path in SOURCES for what in retired_in_prose(path.read_text())
    ] == []


@pytest.mark.parametrize("phrase", RETIRED_IN_SOURCES)
def test_a_retired_word_in_a_source_is_found(phrase: str) -> None:
    other = phrase.replace(" ", "\n    ").title()
    for line, source in (
        (3, f"x = 1\n\n# it {phrase} x"),
        (3, f'"""One.\n\n    It {other} x."""'),
        (2, f'x = 1\n"""It {phrase} x."""'),
    ):
        assert retired_in_prose(source)[0].startswith(f"{line}: ")
    assert not retired_in_prose(f'"""``{phrase}``"""\nx = "{phrase}"')


RETIRED_NAMES = {
    "Aim": "Destination",
    "Asking": "Dispatch",
    "Behind": "Large…",
    "Counted": "InFlightRequest",
    "Crowd": "ConnectionSet",
    "Head": "Headers, RouteKey",
    "LeftOut": "DroppedFields",
    "OutputTally": "ReplayOutput",
    "Passage": "Passthrough",
    "Passed": "Passthrough",
    "Peer": "Connection",
    "Relay": "Passthrough",
    "Room": "ByteBudget",
    "Speech": "Binding",
    "Subject": "ServerUnderTest",
    "Surroundings": "ServerHooks",
    "Tally": "RequestMetrics",
    "Told": "On…",
    "Watch": "Observation",
    "came": "answered",
    "given_up": "reset",
    "habits": "quirks",
    "heard_all": "half_closed_remote",
    "left_out": "dropped_fields",
    "pass_on": "forward",
    "relay": "pass_through",
    "saw": "on_response",
    "told_all": "half_closed_local",
    "told_of": "mapped_error",
}
"""Class or function → replacement. A leading underscore does not count."""

RETIRED_LITERALS = {
    "interlingua_left_out_total": "interlingua_dropped_fields_total",
    "listening to operators": "admin listening",
    "model not loaded": "model failed to load",
    "odd route": "suspicious route",
    "requests were cut": "requests cut at shutdown",
    "unforeseen failure": "unexpected error",
    "upstream server fails": "upstream unreachable",
    "upstream server is back": "upstream recovered",
}
"""Start of a log message, or metric → replacement."""

_SENTENCE = re.compile(r"%|[.:;]|\b(?:is|are|was|were|has|have|had|can|cannot|could|will|did|does)\b")
_LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
# a model's own log lines
_FOREIGN_MESSAGES = {"runtime/python_worker/process.py"}


def retired_in_code(source: str) -> list[str]:
    """Each retired name or literal that the source defines, with its line and replacement."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if (name := node.name.lstrip("_")) in RETIRED_NAMES:
                found.append(f"{node.lineno}: {node.name}: say {RETIRED_NAMES[name]}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [
                f"{node.lineno}: {node.value!r}: say {replacement!r}"
                for start, replacement in RETIRED_LITERALS.items()
                if node.value.startswith(start)
            ]
    return found


def wordy_messages(source: str) -> list[str]:
    """Each log message that is a sentence, or has values in it instead of fields."""
    return [
        f"{text.lineno}: {ast.unparse(text)}"
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in _LEVELS
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "_log"
        for argument in call.args
        for text in ast.walk(argument)
        if isinstance(text, ast.JoinedStr)
        or (isinstance(text, ast.Constant) and isinstance(text.value, str) and _SENTENCE.search(text.value))
    ]


def test_code_has_no_retired_names() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{what}" for path in SOURCES for what in retired_in_code(path.read_text())
    ] == []


def test_log_messages_are_noun_phrases() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{what}"
        for path in SOURCES
        if str(path.relative_to(ROOT)) not in _FOREIGN_MESSAGES
        for what in wordy_messages(path.read_text())
    ] == []


@pytest.mark.parametrize("name", RETIRED_NAMES)
def test_a_retired_name_is_found(name: str) -> None:
    assert retired_in_code(f"class {name}: ...")
    assert retired_in_code(f"class A:\n    async def _{name}(self): ...")
    assert not retired_in_code(f"class {name}s: ...")


@pytest.mark.parametrize("text", RETIRED_LITERALS)
def test_a_retired_literal_is_found(text: str) -> None:
    assert retired_in_code(f'print("{text} now")')


@pytest.mark.parametrize(
    "call",
    [
        '_log.info("the model is ready")',
        '_log.warning("cut: %d", count)',
        '_log.log(level, f"{count} requests")',
        '_log.error("stopped" if done else "nothing could be stopped")',
    ],
)
def test_a_wordy_message_is_found(call: str) -> None:
    assert wordy_messages(call)
    assert not wordy_messages('_log.info("model ready", extra={"facts": {"model": "it is"}})')
