"""Every command of the documentation is executed as its page has it: here, or by the test that ``ELSEWHERE`` names. The
others are in a table of docs/testing.md, with the reason.

What a page shows as output is what the command prints, unless the command is in ``VARIES``."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import requests

from interlingua.translator.cli import main
from tests.e2e.daemon import ROOT, Daemon
from tests.e2e.pages_world import ADMIN, HTTP, World
from tests.pages import Example, examples, matches
from tests.test_docs import PROSE, blocks, named

ELSEWHERE: dict[str, tuple[str, str]] = {
    "README.md": ("tests/e2e/test_readme.py", "README.md"),
    "docs/tutorial.md": ("tests/e2e/test_tutorial.py", "tutorial.md"),
    "docs/migration.md": ("tests/e2e/test_migration.py", "migration.md"),
    "interlingua serve -c config.yaml": ("tests/e2e/daemon.py", '"serve", "-c"'),
    "interlingua serve -c config.yaml --take-over": ("tests/e2e/test_takeover.py", "--take-over"),
    "interlingua serve model.onnx": ("tests/translator/cli/test_serve_path.py", "model.onnx"),
    "interlingua serve --example": ("tests/translator/cli/test_serve_path.py", "--example"),
    "python -m interlingua serve --example --port 9000": ("tests/translator/cli/serving.py", '"-m", "interlingua", "serve"'),
    "interlingua check -c config.example.yaml": ("tests/test_docs.py", "config.example.yaml"),
    "interlingua check -c config.yaml": ("tests/translator/test_check_models.py", "zipmap"),
    "interlingua check -c config.yaml --probe": ("tests/e2e/test_check_probe.py", "--probe"),
    "pytest -p interlingua.translator.conformance.plugin": ("tests/translator/conformance/test_kit.py", "--pyargs"),
}  # fmt: skip
"""A page, or the beginning of a command: the test that executes it, and a text in it."""

VARIES = (
    "interlingua top",
    "interlingua replay",
    "interlingua mirror report",
    "interlingua conformance",
    "openssl",
)
"""Beginnings of commands whose output depends on what a server has done, or on the time."""

CODES = {"interlingua check -c bad.yaml": 2}
"""Exit codes that are not 0."""


def typed(page: Path) -> list[str]:
    return [each.command for each in examples(page.read_text())]


def not_run() -> dict[str, str]:
    """The table of docs/testing.md: beginnings of commands, and why no test runs them."""
    text = (ROOT / "docs/testing.md").read_text()
    section = text.partition("\n## Commands of the pages\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*`) \| (.*) \|$", section, re.MULTILINE)
    return {command: reason for commands, reason in rows for command in re.findall(r"`([^`]+)`", commands)}


def begins(command: str, known: str) -> bool:
    return command == known or command.startswith(f"{known} ")


def is_elsewhere(page: Path, command: str) -> bool:
    # the longest beginning is that of another command
    whole = [
        known
        for known in ELSEWHERE
        if known == command or (known.startswith("pytest") and begins(command, known))
    ]
    return named(page) in ELSEWHERE or bool(whole)


RUN = [
    (page, each)
    for page in PROSE
    for each in examples(page.read_text())
    if not is_elsewhere(page, each.command) and not any(begins(each.command, known) for known in not_run())
]


def test_the_lists_have_nothing_that_is_gone() -> None:
    pages = {named(page) for page in PROSE}
    every = [command for page in PROSE for command in typed(page)]
    shown = "\n".join(page.read_text() for page in PROSE)
    for known, (path, text) in ELSEWHERE.items():
        assert known in pages or any(begins(command, known) for command in every), known
        assert text in (ROOT / path).read_text(), known
    for known, reason in not_run().items():
        # some are in running text
        assert shown.count(known) > 1 or any(begins(command, known) for command in every), known
        assert reason
    for known in (*VARIES, *CODES):
        assert any(begins(each.command, known) for _, each in RUN), known


def test_commands_of_other_systems_are_in_the_table() -> None:
    known = not_run()
    for page in PROSE:
        for command in re.findall(r"`((?:docker|helm|kubectl|systemctl) [^`]*)`", page.read_text()):
            assert any(begins(command, each) for each in known), f"{named(page)}: {command}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if Daemon.workers:
        pytest.skip("one process answers as the pages show")
    found = World.start(tmp_path_factory.mktemp("pages"))
    try:
        url = f"http://127.0.0.1:{found.ports[HTTP]}/v2/models/simple/infer"
        inputs = [
            {"name": name, "datatype": "INT32", "shape": [1, 16], "data": [1] * 16}
            for name in ("INPUT0", "INPUT1")
        ]
        requests.post(url, json={"inputs": inputs}, timeout=60).raise_for_status()
        yield found
        assert found.daemon.stop() == 0
    finally:
        found.daemon.kill()


def _with_resnet50(world: World) -> None:
    world.write_config(resnet50=True, max_connections=2000)


def _with_new_files(world: World) -> None:
    """The configuration without ``resnet50`` runs; that with it, and with another version of ``digits``, is there."""
    world.write_config()
    assert main(["reload", "--admin", f"http://127.0.0.1:{world.ports[ADMIN]}"]) == 0
    (path,) = (world.folder / "models/digits/1").glob("*.onnx")
    path.write_bytes(path.read_bytes())
    _with_resnet50(world)


BEFORE: dict[str, Callable[[World], None]] = {
    "interlingua reload": _with_resnet50,
    "curl -X POST http://127.0.0.1:8002/reload": _with_new_files,
}


def complete(world: World, words: list[str]) -> list[str]:
    """``words`` of a command of ours, with the address that it would take by default, and an end."""
    place = (
        {"infer": ["--url", f"127.0.0.1:{world.ports[HTTP]}"]}.get(words[0], [])
        if "--url" not in words
        else []
    )
    ends = {
        "top": ["--admin", f"127.0.0.1:{world.ports[ADMIN]}", "--once", "--interval-secs", "0.1"],
        "conformance": ["--only", "probes/", "--examples", "1"],
    }
    return [*words, *place, *ends.get(words[0], [])]


def run(world: World, command: str) -> tuple[int, str]:
    """Exit code and output: commands of ours in this process, which has imported everything; others by a shell."""
    here = world.here(command)
    if not command.startswith("interlingua "):
        done = subprocess.run(
            ["/bin/bash", "-c", f"set -o pipefail; {here}"],
            cwd=world.folder, env=world.environment(), capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        return done.returncode, world.there(done.stdout)
    words = [
        str(world.folder / each[2:]) if each.startswith("~/") else each for each in shlex.split(here)[1:]
    ]
    output = io.StringIO()
    with chdir(world.folder), redirect_stdout(output), redirect_stderr(output):
        code = main(complete(world, words))
    return code, world.there(output.getvalue())


PYTHON = {
    "docs/conformance.md": ("tests/translator/conformance/test_kit.py", "conformance.md"),
    "docs/dialects/graphpipe.md": ("tests/translator/test_tcp.py", "graphpipe.md"),
    "docs/python-models.md": ("tests/e2e/pages_world.py", "python-models.md"),
}
"""The pages with programs in Python: what executes them, and a text in it."""


def test_programs_in_python_are_executed(world: World) -> None:
    assert {named(page) for page in PROSE if any(blocks(page, "python"))} == set(PYTHON)
    for path, text in PYTHON.values():
        assert Path(text).name in (ROOT / path).read_text()
    code, printed = run(world, "interlingua infer --model upper --input TEXT=hello --output UPPER")
    assert (code, printed) == (0, "UPPER  BYTES [1]\n['HELLO']\n")


@pytest.mark.parametrize("page", sorted({page for page, _ in RUN}), ids=named)
def test_the_commands_of_a_page(world: World, page: Path) -> None:
    for example in (each for place, each in RUN if place == page):
        before = next((act for known, act in BEFORE.items() if begins(example.command, known)), None)
        if before is not None:
            before(world)
        code, printed = run(world, example.command)
        assert code == CODES.get(example.command, 0), f"{example.command}\n{printed}"
        if example.printed and not any(begins(example.command, known) for known in VARIES):
            assert same(example, printed), f"{example.command}\n{printed}"


def same(example: Example, printed: str) -> bool:
    if example.printed.startswith("{"):
        found: bool = json.loads(printed) == json.loads(example.printed)
        return found
    return matches(example.printed, printed)
