"""Runs the steps of a Dockerfile without Docker: a stage is a folder, an image of Python the running one.

It replaces ``docker build`` where no image can be pulled. A stage shares the file system and the user of the
test, so a test of it shows that the copied files and the commands are right, not that the base images are.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

_LATER = frozenset(("USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"))
"""Of the container, not of its build."""


@dataclass
class Stage:
    """A stage: its instructions, and of a built one the folder that is its root."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)
    root: Path = Path()
    workdir: Path = Path()
    env: dict[str, str] = field(default_factory=dict)

    def instruction(self, word: str) -> str:
        """What follows the last ``word``."""
        return [rest for step, rest in self.steps if step == word][-1]


def stages(path: Path) -> dict[str, Stage]:
    """The stages of the Dockerfile at ``path``, by name."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE)
    found: dict[str, Stage] = {}
    arguments: dict[str, str] = {}
    for line in filter(None, re.sub(r"\\\n\s*", "", text).splitlines()):
        word, _, rest = line.partition(" ")
        if word == "ARG":
            name, _, value = rest.partition("=")
            arguments[f"${{{name}}}"] = value
        elif word == "FROM":
            base, _, name = rest.partition(" AS ")
            found[name] = stage = Stage(name, arguments.get(base, base))
        else:
            stage.steps.append((word, rest))
    return found


def build(stage: Stage, context: Path, root: Path, others: dict[str, Stage]) -> None:
    """Run the steps of ``stage`` below ``root``. Raises ``CalledProcessError`` of a command that fails."""
    stage.root = stage.workdir = root
    for word, rest in stage.steps:
        if word == "WORKDIR":
            stage.workdir = root / rest.lstrip("/")
            stage.workdir.mkdir(parents=True)
        elif word == "ENV":
            stage.env |= dict(each.split("=", 1) for each in rest.split())
        elif word == "COPY":
            _copy(stage, rest.split(), context, others)
        elif word == "RUN":
            _run(stage, rest)
        elif word not in _LATER:
            raise ValueError(f"unknown instruction {word}")


def _copy(stage: Stage, words: list[str], context: Path, others: dict[str, Stage]) -> None:
    source = context
    if words[0].startswith("--from="):
        source = others[words.pop(0).partition("=")[2]].root
    *names, target = words
    for name in names:
        path = source / name.lstrip("/")
        to = stage.workdir / target / path.name if target.endswith("/") else stage.workdir / target
        if path.is_dir():
            to = stage.workdir / target  # as COPY does: the contents of the folder
            shutil.copytree(path, to, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, to)


def _run(stage: Stage, command: str) -> None:
    """The interpreter of a stage comes first on its PATH, and nothing of the running environment is visible."""
    binaries = stage.root / "usr" / "bin"
    binaries.mkdir(parents=True, exist_ok=True)
    if not (binaries / "python3").exists():
        (binaries / "python3").symlink_to(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "HOME", "SSL_"))}
    env = {**kept, **stage.env, "PATH": f"{binaries}:/usr/bin:/bin"}
    subprocess.run(["sh", "-ec", command], cwd=stage.workdir, env=env, check=True)
