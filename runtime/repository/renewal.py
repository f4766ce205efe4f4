"""The steps that replace a model by another of its name.

Their order, and the status meanwhile, belong to ``runtime.repository.catalog``.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.repository.files import Repository, load_model
from interlingua.runtime.repository.overrides import SentFiles, write_files
from interlingua.runtime.target import Target
from interlingua.schemas import ModelControl


def load_from(
    repository: Repository, name: str, control: ModelControl, before: Target | None
) -> tuple[Target, SentFiles | None]:
    """The model, and its folder if a client sent the files; ``before`` itself if nothing has changed.
    Blocks."""
    source = replace(repository.source(name), config=control.config, versions=control.versions)
    if not control.files:
        return load_model(source, before), None
    folder = write_files(name, control.files)
    # no client decides which code the server executes
    sent = replace(source, path=Path(folder.name), allow_pickle=False)
    try:
        return load_model(sent, before), folder
    except BaseException:
        folder.cleanup()
        raise


async def failing_sample(model: Target) -> LoadError | None:
    """Why ``model`` could not run its samples."""
    try:
        await model.warm_up()
    except LoadError as error:
        return error
    return None


async def free(target: Target, files: SentFiles | None, successor: Target | None = None) -> None:
    """Free ``target``, except what ``successor`` has taken over, and the folder that it was loaded from."""
    await (target.close() if successor is None else target.give_way(successor))
    if files is not None:
        await asyncio.to_thread(files.cleanup)


def reusable(target: Target | None) -> Target | None:
    """``target`` if its versions may be taken over; a broken model is loaded again instead."""
    if target is not None and all(each.readiness().ready for each in target.loaded.values()):
        return target
    return None


def loses_versions(model: Target, old: Target | None) -> bool:
    """Whether ``model`` has failed versions and lacks some that ``old`` serves."""
    return bool(model.failed) and old is not None and not old.loaded.keys() <= model.loaded.keys()
