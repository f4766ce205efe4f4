"""Files of others are as their authors released them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "third_party"


@pytest.mark.parametrize("folder", sorted(each.parent for each in FOLDER.glob("*/SHA256SUMS")), ids=str)
def test_the_files_are_unmodified_and_have_a_license(folder: Path) -> None:
    sums = dict(reversed(line.split(maxsplit=1)) for line in (folder / "SHA256SUMS").read_text().splitlines())
    files = {each.name for each in folder.iterdir()} - {"SHA256SUMS", "README.md"}
    assert files == sums.keys()
    assert "LICENSE" in files
    for name in files:
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == sums[name], name


def test_everything_vendored_has_sums() -> None:
    assert {each.name for each in FOLDER.iterdir()} == {
        each.parent.name for each in FOLDER.glob("*/SHA256SUMS")
    }
