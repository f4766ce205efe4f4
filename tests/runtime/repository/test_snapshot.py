"""What counts as a change of a model's files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from interlingua.runtime.repository.snapshot import snapshot, version_number


def model_folder(folder: Path) -> Path:
    for path in (
        "config.pbtxt",
        "labels.txt",
        "lib/helper.py",
        "1/model.onnx",
        "2/model.onnx",
        "2/deep/data",
    ):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(path)
    return folder


def test_versions_and_what_they_share(tmp_path: Path) -> None:
    found = snapshot(model_folder(tmp_path))
    assert [path for path, *_ in found.common] == ["config.pbtxt", "labels.txt", "lib/helper.py"]
    assert {number: [path for path, *_ in files] for number, files in found.versions.items()} == {
        1: ["/model.onnx"],
        2: ["/deep/data", "/model.onnx"],
    }
    assert snapshot(tmp_path) == found


CHANGES: dict[str, Callable[[Path], object]] = {
    "written": lambda folder: (folder / "1/model.onnx").write_text("more"),
    "touched": lambda folder: os.utime(folder / "config.pbtxt", ns=(1, 1)),
    "added": lambda folder: (folder / "2/deep/more").write_text(""),
    "removed": lambda folder: (folder / "labels.txt").unlink(),
    "renamed": lambda folder: (folder / "labels.txt").rename(folder / "names.txt"),
    "a new version": lambda folder: (folder / "3").mkdir(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_shows(tmp_path: Path, change: str) -> None:
    before = snapshot(model_folder(tmp_path))
    CHANGES[change](tmp_path)
    assert snapshot(tmp_path) != before


def test_a_file_that_takes_the_place_of_another_shows(tmp_path: Path) -> None:
    """Even of the same size and age."""
    before = snapshot(model_folder(tmp_path))
    file, other = tmp_path / "1/model.onnx", tmp_path / "1/other"
    kept = file.stat()
    other.write_bytes(file.read_bytes())
    os.utime(other, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    other.rename(file)
    assert snapshot(tmp_path) != before


@pytest.mark.parametrize("path", [".git/index", "1/.part", "__pycache__/a.pyc", "2/deep/__pycache__/a.pyc"])
def test_what_does_not_count(tmp_path: Path, path: str) -> None:
    before = snapshot(model_folder(tmp_path))
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text("")
    assert snapshot(tmp_path) == before


def test_a_link_counts_as_what_it_leads_to(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "model.onnx").write_text("")
    (folder / "3").symlink_to(tmp_path / "elsewhere")
    (folder / "2" / "round").symlink_to(folder / "2")
    (folder / "lib" / "round").symlink_to(folder)
    before = snapshot(folder)
    assert [path for path, *_ in before.versions[3]] == ["/model.onnx"]
    (tmp_path / "elsewhere" / "model.onnx").write_text("more")
    assert snapshot(folder) != before


def test_a_single_file(tmp_path: Path) -> None:
    file = tmp_path / "any.onnx"
    file.write_text("")
    before = snapshot(file)
    file.write_text("more")
    assert snapshot(file) != before
    file.unlink()
    with pytest.raises(OSError, match=r"any\.onnx"):
        snapshot(file)


def test_what_is_a_version() -> None:
    numbers = [
        version_number(name) for name in ("1", "10", "0", "01", "-1", "1.0", "", "one", "\u00b2", "\u0661")
    ]
    assert numbers == [1, 10, 0, None, None, None, None, None, None, None]
