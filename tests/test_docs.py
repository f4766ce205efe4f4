"""The pages that people read, held against what is there: links, paths, commands, options, configurations.

What a page prints or computes is held by the tests of that thing; here is what holds of every page.
"""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import yaml

from interlingua.translator.cli import COMMANDS, main, parser
from interlingua.translator.config import parse
from interlingua.translator.config.schema import schema
from interlingua.translator.config.signature import read_signature

ROOT = Path(__file__).parents[1]
ROOMS = ("schemas", "protocols", "runtime", "translator")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *sorted(ROOT.glob("docs/**/*.md")),
]
# pages that a run writes: requests and answers of other servers, with commands as long as these are
WRITTEN = set((ROOT / "docs" / "conformance").glob("*.md"))
PROSE = [page for page in PAGES if page not in WRITTEN]

_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_PATH = re.compile(
    r"`((?:schemas|protocols|runtime|translator|tests|examples|scripts|benchmarks|docs)/[^`\s]*)`"
)
_MODULE = re.compile(r"python -m ((?:benchmarks|scripts|translator)[\w.]*)")


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """The code of those languages, its indent taken off."""
    for indent, language, code in _BLOCK.findall(page.read_text()):
        if language in languages:
            yield re.sub(f"^{indent}", "", code, flags=re.MULTILINE)


def without_code(page: Path) -> str:
    return _BLOCK.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """What a link may name behind ``#``: the headings, as web pages of repositories spell them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> Iterator[tuple[str, Path, str]]:
    """Each link that stays here: as it is written, where it leads, and the heading."""
    for link in _LINK.findall(without_code(page)):
        if not link.startswith(("http://", "https://")):
            place, _, heading = link.partition("#")
            yield link, (page.parent / place).resolve() if place else page, heading


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    for link, target, heading in links(page):
        assert target.exists(), link
        assert not heading or heading in anchors(target), link


def test_every_page_is_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page.is_dir():  # a link to a folder shows what is in it
            ahead += page.glob("*.md")
        elif page.suffix == ".md" and page not in reached:
            reached.add(page)
            ahead += [target for _, target, _ in links(page)]
    assert not set(PAGES) - reached


@pytest.mark.parametrize("page", PROSE, ids=named)
def test_paths_and_modules_exist(page: Path) -> None:
    text = page.read_text()
    for path in _PATH.findall(text):
        if not re.search(r"[<{]", path):
            assert list(ROOT.glob(path.rstrip("/"))), path
    for module in _MODULE.findall(text):
        place = ROOT / module.rstrip(".").replace(".", "/")
        assert (place / "__main__.py").exists() or place.with_suffix(".py").exists(), module


@pytest.mark.parametrize("page", PROSE, ids=named)
def test_targets_of_make_exist(page: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    # in running text "make" is a word like any other
    written = re.findall(r"(?:`|^\$ |^ {4})make ([\w-]+)", page.read_text(), re.MULTILINE)
    assert set(written) <= targets


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_python_is_python(page: Path) -> None:
    for code in blocks(page, "python"):
        ast.parse(code)


def typed(page: Path) -> Iterator[str]:
    """The lines that a page tells to type: those after ``$ ``, or all of a shell script."""
    for code in blocks(page, "console"):
        lines = iter(code.splitlines())
        for line in lines:
            if line.startswith("$ "):
                while line.endswith("\\"):
                    line = line[:-1] + next(lines)
                yield line[2:]
    for code in blocks(page, "sh"):
        for line in code.replace("\\\n", " ").splitlines():
            if "interlingua" in line.partition(" ")[0]:
                yield line


def commands(page: Path) -> Iterator[list[str]]:
    """The arguments of every ``interlingua`` that a page tells to type."""
    for line in typed(page):
        words = list(takewhile(lambda word: word not in (">", "|"), shlex.split(line, comments=True)))
        if (
            words[1:]
            and words[0].rpartition("/")[2] == "interlingua"
            and words != ["interlingua", "--version"]
        ):
            yield words[1:]


@pytest.mark.parametrize("page", PROSE, ids=named)
def test_commands_are_understood(page: Path) -> None:
    for words in commands(page):
        if "COMMAND" not in words:
            parser().parse_args(words)  # ends the process where it is not


def test_there_are_commands_to_look_at() -> None:
    shown = [words for page in PROSE for words in commands(page)]
    assert {words[0] for words in shown} == set(COMMANDS)


def test_options_of_each_command_are_those_in_its_section() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    sections = {section.split()[0]: section for section in page.split("\n## interlingua ")[1:]}
    assert set(sections) == set(COMMANDS)
    subparsers = next(
        action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    for name, section in sections.items():
        offered = {option for action in subparsers.choices[name]._actions for option in action.option_strings}
        listed = [
            re.findall(r"`(--?[\w-]+)", row.split("|")[1]) for row in re.findall(r"^\| `-.*$", section, re.M)
        ]
        told = {option for options in listed for option in options} | set(re.findall(r" (-c) FILE", section))
        assert offered - {"-h", "--help", "--config"} == told - {"--config"}, name


def configuration(stated: Any) -> dict[str, Any]:
    """A part of a configuration with what else it takes: the models, upstreams and listeners that it names."""
    config: dict[str, Any] = dict(stated) if isinstance(stated, dict) else {"routes": stated}
    config.setdefault("listeners", [{"listen": "127.0.0.1:0", "transport": "http"}])
    told = {"inputs": [{"name": "I", "datatype": "FP32", "shape": [1]}], "outputs": []}
    signature = {**told, "outputs": [{"name": "O", "datatype": "FP32", "shape": [1]}]}
    models = dict(config.get("models") or {})
    names = {listener.get("default_model") for listener in config["listeners"]} | {
        config.get("default_model")
    }
    for route in config.get("routes") or ():
        names |= {route.get("to"), route.get("fallback"), (route.get("mirror") or {}).get("to")}
        names |= {part["to"] for part in route.get("split") or ()}
    absent = sorted(names - set(models) - {None})
    config["models"] = models | {name: {"backend": "identity", "signature": signature} for name in absent}
    upstreams = dict(config.get("upstreams") or {})
    for model in models.values():
        if name := model.get("upstream"):
            upstreams.setdefault(name, {"dialect": "oip", "transport": "grpc", "urls": ["127.0.0.1:18001"]})
    return {**config, "upstreams": upstreams}


@pytest.mark.parametrize("page", PROSE, ids=named)
def test_configurations_are_accepted(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for code in blocks(page, "yaml"):
        stated = yaml.safe_load(code)
        if "livenessProbe" in stated:
            continue  # Kubernetes' own
        if isinstance(stated, dict) and {"inputs", "outputs"} <= set(stated):
            (tmp_path / "signature.yaml").write_text(code)
            assert read_signature(tmp_path / "signature.yaml").inputs
        else:
            config = configuration(stated)
            assert set(config) <= set(schema().model_fields), code
            parse(yaml.safe_dump(config))


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "adr"
    records = {page.name: page.read_text().splitlines()[0].removeprefix("# ") for page in folder.glob("*.md")}
    del records["README.md"]
    index = re.findall(r"^- \[(.+)\]\((.+)\)$", (folder / "README.md").read_text(), re.MULTILINE)
    assert {file: title for title, file in index} == records
    assert [file for _, file in index] == sorted(records)


def test_the_map_has_every_package() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    for room in ROOMS:
        for package in ROOT.glob(f"{room}/*/__init__.py"):
            name = package.parent.name
            assert re.search(rf"\b{room}/{name}\b|`{name}`", text), f"{room}/{name}"


def test_what_check_says_of_the_example(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["check", "-c", str(ROOT / "config.example.yaml")]) == 0
    page = (ROOT / "docs" / "cli.md").read_text()
    for line in takewhile(lambda line: "add_sub" not in line, capsys.readouterr().out.splitlines()):
        assert f"{line}\n" in page
