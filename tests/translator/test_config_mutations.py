"""Whatever the file says: a configuration, or a ``ConfigError`` with a line for each problem."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from interlingua.translator.config import ConfigError, parse
from interlingua.translator.config.context import Installation

ROOT = Path(__file__).parents[2]
EXAMPLE = (ROOT / "config.example.yaml").read_text().replace("examples/models", f"{ROOT}/examples/models")
LINES = re.sub(r"^( *)#(?! )", r"\1", EXAMPLE, flags=re.MULTILINE).splitlines()
INSTALLATION = Installation.present()
VALUES = r"null [] {} 5 -1 1.5 .nan true '' 'x' [1] {a: 1} *a &a !!str !!set 2024-13-01 <<: - ? | \ : #"
PROBLEM = re.compile(r"c\.yaml(:\d+)?: \S.*")

places = st.integers(0, len(LINES) - 1)
values = st.sampled_from(VALUES.split(" ")) | st.text(max_size=5)
mutations = st.lists(
    st.tuples(st.sampled_from(["value", "delete", "insert", "copy"]), places, values), max_size=4
)


def mutated(changes: list[tuple[str, int, str]]) -> str:
    lines = list(LINES)
    for change, place, value in changes:
        place = min(place, len(lines) - 1)
        line = lines[place]
        if change == "delete":
            del lines[place]
        elif change == "copy":
            lines.insert(place // 2, line)
        elif change == "value":
            lines[place] = f"{line.partition(':')[0]}: {value}"
        else:
            lines[place] = line[: place % 40] + value + line[place % 40 :]
    return "\n".join(lines)


def test_the_unchanged_lines_are_valid() -> None:
    assert parse(mutated([]), "c.yaml", INSTALLATION).upstreams


@settings(max_examples=150, deadline=None)
@given(mutations)
def test_only_config_errors(changes: list[tuple[str, int, str]]) -> None:
    lines: list[str] = []
    try:
        parse(mutated(changes), "c.yaml", INSTALLATION)
    except ConfigError as error:
        lines = str(error).split("\n")
    assert all(PROBLEM.match(line) for line in lines), lines
