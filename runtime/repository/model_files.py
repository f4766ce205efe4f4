"""The files of a model folder: its versions, the model file of each, and the backend that the file implies.

The layout is Triton's, ``<version>/model.onnx``. Models of tables may also be as with MLServer and KServe, in
the folder itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from interlingua.runtime.backends import BACKENDS, WELL_KNOWN_FILES, Backend
from interlingua.runtime.model_config.config import LoadError, ModelConfig
from interlingua.runtime.model_config.pbtxt import read_config
from interlingua.runtime.repository.snapshot import version_number

MODEL_SUFFIXES = tuple(dict.fromkeys(Path(filename).suffix for filename, _ in WELL_KNOWN_FILES))
"""The suffixes of model files."""


def backend_of_file(path: Path) -> str | None:
    """The backend of the model file at ``path`` by its suffix, and by its contents where the suffix may be of
    anything; None for another file."""
    known = dict.fromkeys(name for filename, name in WELL_KNOWN_FILES if Path(filename).suffix == path.suffix)
    return next((name for name in known if _is_model(path, BACKENDS[name])), None)


def version_folders(folder: Path, config: ModelConfig) -> dict[int, Path]:
    """The folder of each version in model folder ``folder``, which is a version itself if there are none and
    it has the file of a model of tables."""
    found: dict[int, Path] = {}
    for entry in folder.iterdir():
        number = version_number(entry.name)
        if number is not None and entry.is_dir():
            found[number] = entry
    if not found and _has_table(folder, config):
        return {config.folder_version or 1: folder}
    return found


def sibling_versions(
    folders: Iterable[Path], path: Path, config: ModelConfig
) -> tuple[dict[int, Path], dict[str, int]]:
    """The versions in ``path``, whose settings are ``config``, and in ``folders``, all of which MLServer
    serves, and the names of those that have one. Names are newer than numbers, in the order of text, and the
    version without either is the newest. Raises ``LoadError`` for settings that differ in more than that."""
    found: dict[int, Path] = {}
    others: list[tuple[str, Path]] = []
    names: dict[str, int] = {}
    for folder in (path, *folders):
        other = config if folder is path else read_config(folder)
        if replace(other, folder_version=config.folder_version, version_names=config.version_names) != config:
            raise LoadError(f"{folder}: its settings differ from those in {path} in more than the version")
        if other.folder_version:
            found.setdefault(other.folder_version, folder)
            names |= other.version_names
        else:
            others.append((next(iter(other.version_names), ""), folder))
    for name, folder in sorted(others, key=lambda each: (not each[0], each)):
        number = max(found, default=0) + 1
        found[number] = folder
        if name:
            names[name] = number
    return found, names


def backend_of_files(path: Path, config: ModelConfig, versions: Mapping[int, Path]) -> str:
    """The backend by the suffix of the stated model file, else by the well-known file in the highest
    version. Raises ``LoadError``."""
    stated = config.default_model_filename
    if stated or not versions:
        suffix = Path(stated).suffix
        names = [name for filename, name in WELL_KNOWN_FILES if Path(filename).suffix == suffix]
        if len(set(names)) > 1:
            version = versions[max(versions)]
            file = version if version.is_file() else version / stated
            names = [backend_of_file(file) or names[0]]
        return names[0] if names else "onnxruntime"
    for number in sorted(versions, reverse=True):
        for filename, name in WELL_KNOWN_FILES:
            if _is_model(versions[number] / filename, BACKENDS[name]):
                return name
    known = ", ".join(dict.fromkeys(filename for filename, _ in WELL_KNOWN_FILES))
    raise LoadError(f"{path}: no backend is stated, and no version has one of {known}")


def default_filename(backend: Backend, versions: Mapping[int, Path]) -> str:
    """The name of the model file if none is stated: that in the highest version, or the usual one."""
    if not backend.filenames:
        return ""
    if versions:
        for filename in backend.filenames:
            if (versions[max(versions)] / filename).is_file():
                return filename
    return backend.filenames[0]


def model_file(version: Path, backend: Backend, config: ModelConfig) -> Path:
    """The model file of ``version``, a folder or the file itself. Raises ``LoadError`` if there is none."""
    if not backend.filenames or version.is_file():
        return version
    stated = config.default_model_filename
    # the usual name may have been filled in
    names = (stated,) if stated and stated not in backend.filenames else (stated, *backend.filenames)
    for name in filter(None, names):
        if (version / name).is_file():
            return version / name
    raise LoadError(f"{version / (stated or backend.filenames[0])}: there is no such model file")


def _has_table(folder: Path, config: ModelConfig) -> bool:
    tables = [(filename, BACKENDS[name]) for filename, name in WELL_KNOWN_FILES if BACKENDS[name].tables]
    stated = config.default_model_filename
    if stated:
        suffixes = {Path(filename).suffix for filename, _ in tables}
        implied = config.backend in BACKENDS and BACKENDS[config.backend].tables
        return (implied or Path(stated).suffix in suffixes) and (folder / stated).is_file()
    return any(_is_model(folder / filename, backend) for filename, backend in tables)


def _is_model(file: Path, backend: Backend) -> bool:
    return file.is_file() and backend.recognizes(file)
