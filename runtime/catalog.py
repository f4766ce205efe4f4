"""Every model that the server knows, now: what is served, what failed, what a client has unloaded.

The catalog is what the router looks models up in, so a load or an unload shows at once. A model that is
loaded again is replaced: the new versions are ready before the old ones take no more requests, and these
finish what they have. How files become a model belongs to ``runtime.repository``; who may ask for a load
to the configuration.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runtime.backends import Surroundings
from runtime.changes import Changes
from runtime.model import LocalModel
from runtime.model_config import LoadError
from runtime.overrides import SentFiles, write_files
from runtime.repository import Repository, is_model_name, load_model
from runtime.target import Target
from runtime.upstream_model import UpstreamModel
from schemas import (
    ErrorCode,
    InferenceError,
    ModelControl,
    ModelRef,
    ModelState,
    ModelStatus,
    Readiness,
    VersionStatus,
)

_NOT_ALLOWED = "explicit model load / unload is not allowed if polling is enabled"
_UNLOADED = "unloaded"
_PLAIN = ModelControl()
_STATUS_SECS = 2.0
"""How long the status of everything waits for one upstream to tell of its model."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Absent:
    """A model that is known and not served; ``blocks`` is why the server is not ready without it, empty
    for one that was unloaded."""

    status: ModelStatus
    blocks: str


class ModelCatalog:
    """The models of the server. ``models`` is the live mapping of those that are served.

    ``changes`` tells when what :meth:`readiness` says of a model may have changed, but for models behind an
    upstream. ``failed`` are those that could not be loaded. The models of ``repositories`` that are
    controlled may be loaded and unloaded, but for those in ``fixed``, which the configuration defines by
    itself; of two repositories with one model the later counts. ``asked_for`` names what clients have
    loaded. Use on one event loop.
    """

    def __init__(
        self,
        models: Mapping[str, Target] | None = None,
        failed: Mapping[str, LoadError] | None = None,
        repositories: Sequence[Repository] = (),
        fixed: Iterable[str] = (),
    ) -> None:
        self._models = dict(models or {})
        self.models: Mapping[str, Target] = self._models
        self.asked_for: set[str] = set()
        self._absent = {name: _failed(name, error) for name, error in (failed or {}).items()}
        self._repositories = tuple(reversed(repositories))
        self._fixed = frozenset(fixed)
        self._homes: dict[str, Repository] = {}
        for repository in repositories:
            self._homes |= {name: repository for name in _names(repository) if self._knows(name)}
        self._joined: dict[str, tuple[Target, ModelRef]] = {}
        self._files: dict[str, SentFiles] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._working: set[asyncio.Task[None]] = set()
        self.changes = Changes()
        self._surroundings = Surroundings(self.find, self.standing, self.changes.happened)
        for model in self._models.values():
            if isinstance(model, LocalModel):
                model.join(self._surroundings)

    def names(self) -> list[str]:
        """The models that are served or were, sorted."""
        return sorted(self._models.keys() | self._absent.keys())

    async def joined(self, text: str) -> ModelRef:
        """What ``text`` names: a model, or a model and a version of it joined by a dash; itself where that is
        nothing that is served. Names and versions may have dashes of their own, so it is compared with what
        there is and never taken apart. Raises UNAVAILABLE where that is not known because an upstream cannot
        be asked."""
        if text in self._models:
            return ModelRef(text)
        known = self._joined.get(text)
        # a model that is loaded anew may have other versions
        if known is not None and self._models.get(known[1].name) is known[0]:
            return known[1]
        failure: InferenceError | None = None
        for name, target in tuple(self._models.items()):
            if not text.startswith(f"{name}-"):
                continue
            named = ModelRef(name, text[len(name) + 1 :])
            try:
                versions = (await target.metadata()).versions
            except InferenceError as error:
                failure = error if error.retryable else failure
                continue
            if named.version in versions:
                self._joined[text] = target, named
                return named
        if failure is not None:
            raise failure
        return ModelRef(text)

    @property
    def is_empty(self) -> bool:
        """Whether no model is served, and none would be but for a client who has unloaded it."""
        return not self._models and all(absent.blocks for absent in self._absent.values())

    @property
    def tells_all_changes(self) -> bool:
        """Whether ``changes`` tells of every model, because none is elsewhere."""
        return all(isinstance(model, LocalModel) for model in self._models.values())

    def find(self, name: str) -> Target:
        """The model of that name, where it is served. Raises NOT_FOUND."""
        target = self._models.get(name)
        if target is None:
            raise self.missing(name)
        return target

    def missing(self, name: str, version: str = "") -> InferenceError:
        """NOT_FOUND for a model that is not served, in the words that Triton's clients match on."""
        known = [each.version for each in self._absent[name].status.versions] if name in self._absent else []
        if not known:
            why = "is not found"
        elif not version:
            why = "has no available versions"
        else:
            why = f"version {version} is {'not at ready state' if version in known else 'not found'}"
        return InferenceError(ErrorCode.NOT_FOUND, f"Request for unknown model: '{name}' {why}", origin=name)

    def standing(self, name: str, version: str = "") -> Readiness:
        """Whether a model would be run now, as far as that is known here: an upstream is not asked."""
        target = self._models.get(name)
        if target is None:
            return Readiness(False, self.absence(name))
        return target.readiness(version) if isinstance(target, LocalModel) else Readiness(True)

    def absence(self, name: str) -> str:
        """Why a model is not served."""
        absent = self._absent.get(name)
        if absent is None:
            return "it is not known here"
        return absent.blocks or f"it is {_UNLOADED}"

    async def readiness(self, names: Iterable[str]) -> Readiness:
        """Whether each of ``names`` is ready with all its versions, or was unloaded; else what is not."""
        served = []
        for name in sorted(names):
            target = self._models.get(name)
            absent = self._absent.get(name)
            if target is not None:
                served.append(target)
            elif absent is not None and absent.blocks:
                return Readiness(False, absent.blocks)
        for target in served:
            if isinstance(target, LocalModel):
                for version, reason in target.failed.items():
                    return Readiness(False, f"model '{target.name}' version {version} is not ready: {reason}")
        said = await asyncio.gather(*(target.ready() for target in served))
        return next((state for state in said if not state.ready), Readiness(True))

    async def status(self, name: str) -> ModelStatus | None:
        """The status of one model; None for one that is not known. Raises UNAVAILABLE where an upstream
        cannot be asked."""
        target = self._models.get(name)
        if target is not None:
            return replace(await target.status(), name=name)
        absent = self._absent.get(name)
        return None if absent is None else absent.status

    async def statuses(self) -> dict[str, ModelStatus]:
        """The status of every model that is served or was; a name alone where an upstream does
        not tell."""
        names = self.names()
        told = await asyncio.gather(*(self._status_or_name(name) for name in names))
        return dict(zip(names, told, strict=True))

    async def index(self, repository: str = "") -> tuple[ModelStatus, ...]:
        """Every model that is served or was, and those of the repositories that never were, by name alone;
        where ``repository`` is named, the models of that one. Raises UNSUPPORTED for a name that is none."""
        known = await self.statuses()
        chosen = self._named(repository)
        held: set[str] = set()
        for found in await asyncio.gather(*(asyncio.to_thread(_names, each) for each in chosen)):
            held.update(found)
        for name in held:
            known.setdefault(name, ModelStatus(name))
        if repository:
            # two repositories may hold one model: it is of the one that it was loaded from
            names = {name for name, home in self._homes.items() if home in chosen}
            known = {name: known[name] for name in known if name in names | (held - self._homes.keys())}
        return tuple(known[name] for name in sorted(known))

    async def load(self, name: str, control: ModelControl = _PLAIN) -> None:
        """Load a model, again where it is served already; it goes on being served if that fails.

        Raises UNAVAILABLE where loading is not allowed, FORBIDDEN where a configuration or files may not
        be given, UNSUPPORTED for a repository that there is not, INTERNAL in the original servers' words
        for a model that is not there, MODEL_FAILED for one of which a version could not be loaded.
        """
        chosen = self._named(control.repository)
        remote = self._remote(name, control)
        if remote is not None:
            await remote.load()
            return
        # not in a thread: acts on one model take turns in the order in which they came
        repository = _home(name, chosen)
        self._check_control(name, repository)
        if repository is None and control.files and is_model_name(name):
            # with all its files a model needs no folder
            repository = next((each for each in chosen if each.controlled), None)
        if repository is None:
            raise _not_loaded(ErrorCode.INTERNAL, name, "failed to poll from model repository")
        _check_overrides(name, repository, control)
        # a caller who goes away must not leave a half-loaded model behind
        await asyncio.shield(self._start(self._load(name, repository, control)))

    async def unload(self, name: str, control: ModelControl = _PLAIN) -> None:
        """Take no more requests for a model and free it when those in flight are done, which is not
        waited for. A model that is not known is unloaded already; no model depends on another. Raises
        UNAVAILABLE where unloading is not allowed, UNSUPPORTED for a repository that there is not."""
        chosen = self._named(control.repository)
        remote = self._remote(name, control)
        if remote is not None:
            await remote.unload()
            return
        # its folder may have gone since it was loaded
        home = self._homes.get(name) or _home(name, chosen)
        self._check_control(name, home)
        if control.repository and home not in chosen:
            return
        if self._knows(name):
            await asyncio.shield(self._start(self._unload(name)))

    async def close(self) -> None:
        """Finish loads and requests, then free every model."""
        while self._working:
            await asyncio.wait(self._working)
        # at once, because a model in a process of its own takes some time to end
        await asyncio.gather(
            *(_close(target, self._files.get(name)) for name, target in self._models.items())
        )

    # --- how it is done

    async def _load(self, name: str, repository: Repository, control: ModelControl) -> None:
        self.asked_for.add(name)
        self._homes[name] = repository
        async with self._lock(name):
            old = self._models.get(name)
            before = await self.status(name) or ModelStatus(name)
            if old is None:
                loading = _all(before, ModelState.LOADING)
                self._absent[name] = _Absent(loading, f"model '{name}' is being loaded")
                self.changes.happened()
            try:
                model, sent = await asyncio.to_thread(_load_from, repository, name, control)
            except Exception as error:
                # whatever an engine may raise, a model must not stay in the state of being loaded
                why = error if isinstance(error, LoadError) else LoadError(f"{type(error).__name__}: {error}")
                _log.error("model not loaded", extra={"facts": {"model": name, "reason": str(why)}})
                if old is None:
                    self._absent[name] = _failed(name, why, before.config)
                self.changes.happened()
                reason = f"no version is available: {why}"
                raise _not_loaded(ErrorCode.MODEL_FAILED, name, reason) from error
            model.continue_statistics({each.version: each.statistics for each in before.versions})
            model.join(self._surroundings)
            self._models[name] = model
            self._absent.pop(name, None)
            old_files = self._files.pop(name, None)
            if sent is not None:
                self._files[name] = sent
            if old is not None:
                self._start(_close(old, old_files))
            self.changes.happened()
        _log.info("model loaded", extra={"facts": {"model": name}})
        if model.failed:
            numbers = ",".join(sorted(model.failed, key=int))
            raise _not_loaded(ErrorCode.MODEL_FAILED, name, f"versions that are not available: {numbers}")

    async def _unload(self, name: str) -> None:
        async with self._lock(name):
            before = await self.status(name) or ModelStatus(name)
            target = self._models.pop(name, None)
            unloaded = _Absent(_all(before, ModelState.UNAVAILABLE, _UNLOADED), "")
            if target is None:
                self._absent[name] = unloaded
            else:
                unloading = _Absent(_all(before, ModelState.UNLOADING), "")
                self._absent[name] = unloading
                self._start(self._free(target, self._files.pop(name, None), unloading, unloaded))
            self.changes.happened()
        _log.info("model unloaded", extra={"facts": {"model": name}})

    async def _free(
        self, target: Target, files: SentFiles | None, unloading: _Absent, unloaded: _Absent
    ) -> None:
        name = unloading.status.name
        await _close(target, files)
        # it may have been loaded again meanwhile
        if self._absent.get(name) is unloading:
            self._absent[name] = unloaded

    async def _status_or_name(self, name: str) -> ModelStatus:
        try:
            async with asyncio.timeout(_STATUS_SECS):
                return await self.status(name) or ModelStatus(name)
        except (InferenceError, TimeoutError) as error:
            _log.warning("no status of a model", extra={"facts": {"model": name, "reason": str(error)}})
            return ModelStatus(name)

    def _knows(self, name: str) -> bool:
        return name in self._models or name in self._absent

    def _remote(self, name: str, control: ModelControl) -> UpstreamModel | None:
        """The model behind an upstream that clients may control there, where ``name`` is one. Raises
        UNSUPPORTED for what does not travel to it."""
        target = self._models.get(name)
        if not isinstance(target, UpstreamModel) or not target.controlled:
            return None
        if control.repository or control.config is not None or control.files:
            raise InferenceError(
                ErrorCode.UNSUPPORTED,
                f"model '{name}' is behind another server: no repository, configuration or files can be "
                f"given with its load",
                origin=name,
            )
        return target

    def _named(self, repository: str) -> tuple[Repository, ...]:
        """The repositories of that name, all for none. Raises UNSUPPORTED."""
        if not repository:
            return self._repositories
        named = tuple(each for each in self._repositories if each.name == repository)
        if not named:
            raise InferenceError(
                ErrorCode.UNSUPPORTED,
                f"'repository_name' specification is not supported for '{repository}', which is none of "
                f"the repositories here",
            )
        return named

    def _check_control(self, name: str, home: Repository | None) -> None:
        """Raise UNAVAILABLE where clients may not control ``name``, of the repository ``home``."""
        allowed = home.controlled if home else any(each.controlled for each in self._repositories)
        if not allowed or name in self._fixed:
            raise InferenceError(ErrorCode.UNAVAILABLE, f"{_NOT_ALLOWED}: model '{name}'", retryable=False)

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        # the caller who would be told may have gone away
        if not task.cancelled():
            task.exception()


def _load_from(
    repository: Repository, name: str, control: ModelControl
) -> tuple[LocalModel, SentFiles | None]:
    """The model, and the folder that it was loaded from where its files were sent. Blocks."""
    source = replace(repository.source(name), config=control.config)
    if not control.files:
        return load_model(source), None
    folder = write_files(name, control.files)
    try:
        return load_model(replace(source, path=Path(folder.name))), folder
    except BaseException:
        folder.cleanup()
        raise


def _check_overrides(name: str, repository: Repository, control: ModelControl) -> None:
    """Raise FORBIDDEN for what ``repository`` does not let clients put in place of a model's own."""
    if control.files and control.config is None:
        raise InferenceError(
            ErrorCode.INVALID_TENSOR,
            f"failed to load '{name}', override model directory requires the override of its config",
            origin=name,
        )
    given = "files" if control.files else "config" if control.config is not None else "none"
    allowed = ("none", "config", "files")
    if allowed.index(given) > allowed.index(repository.overrides):
        raise InferenceError(
            ErrorCode.FORBIDDEN,
            f"failed to load '{name}', this repository does not allow clients to give a model's {given}",
            origin=name,
        )


async def _close(target: Target, files: SentFiles | None) -> None:
    await target.close()
    if files is not None:
        await asyncio.to_thread(files.cleanup)


def _home(name: str, repositories: Iterable[Repository]) -> Repository | None:
    """The repository that holds ``name`` now. Reads folders."""
    return next((each for each in repositories if each.holds(name)), None)


def _names(repository: Repository) -> list[str]:
    try:
        return repository.names()
    except LoadError as error:
        _log.warning("no index of a repository", extra={"facts": {"reason": str(error)}})
        return []


def _all(status: ModelStatus, state: ModelState, reason: str = "") -> ModelStatus:
    """``status`` with all its versions in another state."""
    versions = tuple(replace(version, state=state, reason=reason) for version in status.versions)
    return replace(status, versions=versions)


def _failed(name: str, error: LoadError, known_config: bytes = b"") -> _Absent:
    versions = tuple(
        VersionStatus(str(number), ModelState.UNAVAILABLE, reason)
        for number, reason in sorted(error.versions.items())
    )
    status = ModelStatus(name, error.config or known_config, versions)
    return _Absent(status, f"model '{name}' could not be loaded: {error}")


def _not_loaded(code: ErrorCode, name: str, why: str) -> InferenceError:
    return InferenceError(code, f"failed to load '{name}', {why}", origin=name)
