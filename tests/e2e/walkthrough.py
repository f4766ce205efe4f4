"""Carries out a page that says what to put into which file and which commands to run.

A block of YAML begins with the name of its file, ``# FILE`` or ``# add to FILE``; ``add`` puts its top-level keys
in place of those that are there. In a block of console lines those with ``$`` are commands and the others what
is printed, ``...`` being any number of lines. ``interlingua serve -c FILE`` starts the daemon, in place of the one
that serves that file.
"""

from __future__ import annotations

import io
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, chdir, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from interlingua.translator.cli import main
from tests.e2e.daemon import Daemon

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#{2,3}) (.*)$", re.MULTILINE)
_COUNTED_SECS = 30.0
"""How long a count may stay 0 before the page is wrong."""
_COUNTS = re.compile(r"[1-9][0-9]*(?= (?:compared|equal))")


@dataclass(frozen=True)
class Step:
    """What stands under a heading of the third level: blocks, each with its language."""

    name: str
    blocks: tuple[tuple[str, str], ...]


def steps(page: Path, section: str) -> list[Step]:
    """The steps under the heading ``section`` of the second level. Raises ``LookupError``."""
    text = page.read_text()
    headings = list(_HEADING.finditer(text))
    found: list[Step] = []
    inside = False
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        level, name = heading.groups()
        if level == "##":
            inside = name == section
        elif inside:
            body = text[heading.end() : following.start() if following else len(text)]
            found.append(Step(name, tuple((each[1], each[2]) for each in _BLOCK.finditer(body))))
    if not found:
        raise LookupError(f"{page.name} has no section '{section}' with steps")
    return found


@dataclass
class Walkthrough:
    """Carries out steps in ``folder``. ``places`` maps what the page writes to what it is here, such as addresses;
    ``undisturbed`` stands around every time in which no daemon may be asked."""

    folder: Path
    places: Mapping[str, str]
    undisturbed: Callable[[], AbstractContextManager[None]] = nullcontext
    serving: dict[str, Daemon] = field(default_factory=dict)
    _files: dict[str, dict[str, Any]] = field(default_factory=dict)

    def carry_out(self, step: Step) -> None:
        """Write the files and run the commands. Raises ``AssertionError`` where one does otherwise than the
        page says."""
        for language, text in step.blocks:
            if language == "yaml":
                self._write(text)
            elif language == "console":
                for command, printed in _commands(text):
                    self._run(command, printed)

    def stop(self) -> None:
        """Stop every daemon; each must end well."""
        daemons, self.serving = self.serving, {}
        assert [daemon.stop() for daemon in daemons.values()] == [0] * len(daemons)

    def kill(self) -> None:
        """Leave nothing behind, whatever has happened."""
        for daemon in self.serving.values():
            daemon.kill()

    def here(self, text: str) -> str:
        """``text`` with what is here in place of what the page writes."""
        known = sorted(self.places, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, known)), lambda found: self.places[found[0]], text)

    def _write(self, text: str) -> None:
        first, rest = text.split("\n", 1)
        told = yaml.safe_load(self.here(rest))
        name = first.removeprefix("# ").removeprefix("add to ")
        self._files[name] = {**self._files[name], **told} if first.startswith("# add to ") else told
        (self.folder / name).write_text(yaml.safe_dump(self._files[name], sort_keys=False))

    def _run(self, command: str, printed: list[str]) -> None:
        program, *arguments = shlex.split(self.here(command))
        assert program == "interlingua", f"the page is to show commands of ours: {command}"
        if arguments[:2] == ["serve", "-c"]:
            self._serve(arguments[2])
            return
        until = time.monotonic() + _COUNTED_SECS
        while True:
            output, errors = io.StringIO(), io.StringIO()
            # in this process, which has imported everything
            with chdir(self.folder), redirect_stdout(output), redirect_stderr(errors):
                code = main(arguments)
            said = f"{command}\n{output.getvalue()}{errors.getvalue()}"
            assert code == 0, f"it ended with {code}: {said}"
            if re.fullmatch("".join(_pattern(line) for line in printed), output.getvalue()):
                return
            # there may be nothing to count yet
            counted = re.fullmatch("".join(_pattern(line, "[0-9]+") for line in printed), output.getvalue())
            assert counted and time.monotonic() < until, f"it printed something else: {said}"
            time.sleep(0.2)

    def _serve(self, name: str) -> None:
        with self.undisturbed():
            before = self.serving.pop(name, None)
            if before is not None:
                assert before.stop() == 0
            folder = self.folder / f"daemon of {name}"
            folder.mkdir(exist_ok=True)
            self.serving[name] = Daemon.start(folder, self._files[name])


def _commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command and the lines that it prints."""
    command, printed = "", list[str]()
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, printed
            command, printed = line[2:], []
        else:
            printed.append(line)
    if command:
        yield command, printed


def _pattern(line: str, count: str = "[1-9][0-9]*") -> str:
    if line == "...":
        return r"(?:.*\n)*"
    return count.join(map(re.escape, _COUNTS.split(line))) + r"\n"
