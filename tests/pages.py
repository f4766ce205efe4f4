"""Pages that people follow: what they type, and what they see then."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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
    pattern = "".join(
        r"(.*\n)*?" if line.strip() == "..." else re.escape(f"{line}\n") for line in shown.splitlines()
    )
    return re.fullmatch(pattern, printed.strip("\n") + "\n") is not None


class Shell:
    """A shell in a folder; what runs in its background ends with it."""

    _END = "the end of a step:"

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["/bin/bash"],
            cwd=folder,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, commands: str) -> tuple[int, str]:
        """The status of the last command, and what all have printed."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        # some commands print no end of the line
        process.stdin.write(f"{commands}\nprintf '\\n{self._END}%s\\n' $?\n")
        process.stdin.flush()
        printed = []
        for line in process.stdout:
            if line.startswith(self._END):
                return int(line.removeprefix(self._END)), "".join(printed)
            printed.append(line)
        return process.wait(), "".join(printed)

    def end(self) -> None:
        """Kill all of it."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


@contextmanager
def shell(folder: Path, **variables: str) -> Iterator[Shell]:
    """A shell in ``folder``, with ``variables`` in its environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    found = Shell(folder, {**kept, **variables})
    try:
        yield found
    finally:
        found.end()


@dataclass(frozen=True)
class Example:
    """A command of a page, and what it shows below it; empty if it shows nothing."""

    command: str
    printed: str


_CONSOLE = re.compile(r"^( *)```(?:console|bash|sh)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def examples(text: str) -> Iterator[Example]:
    """What a page tells to type: lines after ``$ ``, or every line of a block without any."""
    for indent, code in _CONSOLE.findall(text):
        lines = re.sub(r"\\\n\s*", "", re.sub(f"^{indent}", "", code, flags=re.MULTILINE)).splitlines()
        if not any(line.startswith("$ ") for line in lines):
            # lines of a log have no command
            lines = [f"$ {line}" for line in lines if line and not line.startswith("privileged operation")]
        command, printed = "", list[str]()
        for line in lines:
            if line.startswith("$ "):
                if command:
                    yield Example(command, "\n".join(printed))
                command, printed = line[2:].partition("  #")[0].strip(), []
            else:
                printed.append(line)
        if command:
            yield Example(command, "\n".join(printed))
