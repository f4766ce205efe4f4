"""What a release consists of besides its code, held against pyproject.toml."""

from __future__ import annotations

import tomllib
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


@pytest.mark.parametrize(
    "path", [path for path in TEMPLATES if path.stem != "config"], ids=lambda path: path.stem
)
def test_forms_for_issues(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= set(form)
    for field in form["body"]:
        assert field["type"] in ("input", "textarea", "dropdown", "checkboxes", "markdown")
        assert field["attributes"]["label"]
