"""The steps by which one model takes the place of another of its name.

Their order, and the status meanwhile, belong to ``runtime.repository.catalog``.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.repository.files import Repository, load_model
from interlingua.runtime.repository.overrides import SentFiles, write_files
from interlingua.runtime.target import Target
from interlingua.schemas import ModelControl


def load_from(
    repository: Repository, name: str, control: ModelControl, before: LocalModel | None
) -> tuple[LocalModel, SentFiles | None]:
    """The model, and the folder that it was loaded from where its files were sent; ``before`` itself where
    nothing has changed. Blocks."""
    source = replace(repository.source(name), config=control.config)
    if not control.files:
        return load_model(source, before), None
    folder = write_files(name, control.files)
    try:
        return load_model(replace(source, path=Path(folder.name)), before), folder
    except BaseException:
        folder.cleanup()
        raise


async def failing_sample(model: LocalModel) -> LoadError | None:
    """Why ``model`` could not run its samples."""
    try:
        await model.warm_up()
    except LoadError as error:
        return error
    return None


async def free(target: Target, files: SentFiles | None, successor: Target | None = None) -> None:
    """Free ``target``, but for what ``successor`` has taken over of it, and the folder that it came from."""
    if isinstance(target, LocalModel) and isinstance(successor, LocalModel):
        await target.give_way(successor)
    else:
        await target.close()
    if files is not None:
        await asyncio.to_thread(files.cleanup)


def reusable(target: Target | None) -> LocalModel | None:
    """``target`` where its versions may be taken over; a broken model is loaded again instead."""
    if isinstance(target, LocalModel) and all(each.readiness().ready for each in target.loaded.values()):
        return target
    return None


def loses_versions(model: LocalModel, old: Target | None) -> bool:
    """Whether ``model`` has failed versions and lacks some that ``old`` serves."""
    served = old.loaded.keys() if isinstance(old, LocalModel) else frozenset()
    return bool(model.failed) and not served <= model.loaded.keys()


def needs_of(target: Target) -> tuple[str, ...]:
    return target.needs if isinstance(target, LocalModel) else ()
