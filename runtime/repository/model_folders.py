"""The model folders of a repository, by the names of their models.

A folder is called like its model, unless MLServer's settings in it state another name. MLServer finds its
settings at any depth (``mlserver/repository/repository.py``): a folder with neither a configuration nor
settings of its own is no model if there are settings below it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from interlingua.runtime.model_config.mlserver_settings import SETTINGS_FILENAME, stated_name
from interlingua.runtime.model_config.pbtxt import CONFIG_FILENAME


def is_model_name(name: str) -> bool:
    """Whether a folder of models may hold one of that name."""
    return bool(name) and not name.startswith(".") and "/" not in name


def model_folders(repository: Path) -> dict[str, Path]:
    """The folder of each model in ``repository``, sorted by name; of several for one name the first, or that
    of the name. Blocks. Raises ``OSError``."""
    names = (entry.name for entry in repository.iterdir() if entry.is_dir() and entry.name[0] != ".")
    found: dict[str, Path] = {}
    for child in (repository / name for name in sorted(names)):
        for folder in _models_in(child):
            name = _name(folder)
            if name == folder.name or name not in found:
                found[name] = folder
    return dict(sorted(found.items()))


def model_folder(repository: Path, name: str) -> Path | None:
    """The folder of model ``name`` in ``repository``, None without one. ``name`` is that of a folder, see
    ``is_model_name``. Blocks."""
    folder = repository / name
    # os.path, because pathlib raises for a name that is too long to be one
    if os.path.isdir(folder) and _name(folder) == name and folder in _models_in(folder):
        return folder
    try:
        return model_folders(repository).get(name)
    except OSError:
        return None


def sibling_folders(repository: Path, folder: Path) -> tuple[Path, ...]:
    """The other folders in that of ``folder``, below ``repository``, with MLServer's settings of the same
    model: those of its other versions. Folders at the top of a repository are models of their own. Blocks."""
    if folder.parent == repository or not _has_settings(folder):
        return ()
    name = _name(folder)
    others = (entry for entry in folder.parent.iterdir() if entry != folder and entry.name[0] != ".")
    return tuple(sorted(entry for entry in others if _has_settings(entry) and _name(entry) == name))


def _has_settings(folder: Path) -> bool:
    return (folder / SETTINGS_FILENAME).is_file() and not (folder / CONFIG_FILENAME).is_file()


def _models_in(folder: Path) -> tuple[Path, ...]:
    """The folders with settings: ``folder`` itself, and those in it; ``folder`` if there are none."""
    if (folder / CONFIG_FILENAME).is_file():
        return (folder,)
    return tuple(_with_settings(folder)) or (folder,)


def _with_settings(top: Path) -> Iterator[Path]:
    # links may lead in circles
    seen = {os.path.realpath(top.parent)}
    for path, folders, files in os.walk(top, followlinks=True):
        folders[:] = sorted(each for each in folders if each[0] != ".")
        place = os.path.realpath(path)
        if place in seen or CONFIG_FILENAME in files:
            folders.clear()
        elif SETTINGS_FILENAME in files:
            yield Path(path)
        seen.add(place)


def _name(folder: Path) -> str:
    if not _has_settings(folder):
        return folder.name
    name = stated_name(folder)
    # a name that no path can have would be that of no request either
    return name if name and not name.startswith(".") and "/" not in name else folder.name
