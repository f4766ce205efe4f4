"""Pages that people follow: what they type, and what they see then."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    """Commands of a shell, and what a page shows as their output; None if it shows nothing."""

    commands: str
    printed: str | None


def steps(text: str) -> list[Step]:
    """The blocks of ``sh`` in a page, each with the block of ``text`` that follows it."""
    blocks = _BLOCK.findall(text)
    following = [*blocks[1:], ("", "")]
    return [
        Step(code, then if kind == "text" else None)
        for (language, code), (kind, then) in zip(blocks, following, strict=True)
        if language == "sh"
    ]


def matches(shown: str, printed: str) -> bool:
    """Whether ``printed`` is what a page shows; a line ``...`` of a page takes the place of any lines."""
    pattern = "".join(r"(.*\n)*?" if line == "..." else re.escape(f"{line}\n") for line in shown.splitlines())
    return re.fullmatch(pattern, printed.strip("\n") + "\n") is not None
