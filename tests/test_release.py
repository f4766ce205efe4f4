"""What a release consists of besides its code, held against pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    stated = citation["title"].lower(), citation["version"], citation["license"]
    assert stated == (PROJECT["name"], PROJECT["version"], PROJECT["license"])
    assert {"cff-version", "message", "authors"} <= set(citation)


STATED = {
    "CITATION.cff": r"^version: (\S+)$",
    "deploy/helm/interlingua/Chart.yaml": r"^(?:version|appVersion): (\S+)$",
    "deploy/kserve/serving-runtime.yaml": r"image: interlingua:(\S+)$",
    "deploy/kubernetes/kustomization.yaml": r"newTag: (\S+)}$",
    "docs/cli.md": r"^interlingua (\d\S+), up for",
    "docs/tutorial.md": r"^interlingua (\d\S+)$|\(interlingua (\S+)\)",
}
"""The files that repeat the version of pyproject.toml."""


@pytest.mark.parametrize("name", STATED)
def test_files_that_repeat_the_version(name: str) -> None:
    found = re.findall(STATED[name], (ROOT / name).read_text(), re.MULTILINE)
    stated = {"".join(each) for each in found}
    assert stated == {PROJECT["version"]}


def test_the_changelog_has_the_version_with_a_date_and_upgrade_notes() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    sections = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert sections == sorted(set(sections), key=sections.index)
    title = next(each for each in sections if each.startswith(f"{PROJECT['version']} "))
    assert re.fullmatch(r"\S+ \(\d{4}-\d{2}-\d{2}\)", title)
    own = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    parts = re.findall(r"^### (.*)$", own, re.MULTILINE)
    assert parts == ["Upgrade notes", "Changed", "Added", "Fixed"]
    assert sections[:2] == ["Unreleased", title]
    entries = [line for line in own.splitlines() if line.startswith("- ")]
    assert [line for line, count in Counter(entries).items() if count > 1] == []


def test_the_steps_of_a_release_are_targets() -> None:
    steps = (ROOT / "CONTRIBUTING.md").read_text().partition("\n## Making a release\n")[2]
    named = set(re.findall(r"`make ([\w-]+)`", steps))
    assert {"test-wheel", "test-deploy", "docs", "sbom", "audit", "constraints"} <= named


@pytest.mark.parametrize(
    "path", [path for path in TEMPLATES if path.stem != "config"], ids=lambda path: path.stem
)
def test_forms_for_issues(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= set(form)
    for field in form["body"]:
        assert field["type"] in ("input", "textarea", "dropdown", "checkboxes", "markdown")
        assert field["attributes"]["label"]
