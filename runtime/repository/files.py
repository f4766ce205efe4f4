"""From files to models: single ONNX files, model folders and whole repositories of folders.

A model folder is what Triton and the TensorRT Inference Server have: ``config.pbtxt`` (optional), label
files, and one folder per version that is named by its number and holds the model file, which tells the
backend where no configuration does. A model that cannot be loaded does not stop the others: it is among the
failures, with its reason. Nothing here prints; a callback shows progress.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path
from threading import Lock
from typing import Literal, cast

from interlingua.runtime.backends import (
    BACKEND_OF_PLATFORM,
    BACKEND_OF_SUFFIX,
    BACKENDS,
    Backend,
    Instance,
    RequestInstance,
)
from interlingua.runtime.backends.devices import placed
from interlingua.runtime.model_config.config import LoadError, ModelConfig, agreed_signature
from interlingua.runtime.model_config.hidden_tensors import seen_signature, with_unseen
from interlingua.runtime.model_config.message import config_message
from interlingua.runtime.model_config.pbtxt import override_config, read_config
from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.models.request_version import RequestVersion
from interlingua.runtime.models.reshape import reshaped
from interlingua.runtime.models.spread import Spread
from interlingua.runtime.models.tensor_version import TensorVersion, default_instances
from interlingua.runtime.models.warmup import read_samples
from interlingua.runtime.repository.snapshot import Origin, snapshot, version_number
from interlingua.runtime.scheduling.policy import DEFAULT_LIMITS, Limits, Scheduling
from interlingua.runtime.target import Target, Version
from interlingua.schemas import Parameter, Signature

State = Literal["loading", "ready", "failed"]

Progress = Callable[[str, State], None]
"""Gets the name and state of each model, one call at a time, from the threads that load."""

ALL = "*"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model is and what is stated of it beside its own configuration, which it overrides.

    ``path`` is a model folder or a single model file, None for a backend that needs no file.
    An empty ``backend`` is the one that the model's configuration names, else that of the model file; 0
    ``instances`` is the configuration's number, else :func:`default_instances`. For ``device`` and
    ``providers`` see ``ModelConfig``, as for ``limits``. ``config`` is a serialized ``inference.ModelConfig``
    in place of the folder's own.
    """

    name: str
    path: Path | None
    backend: str = ""
    description: str = ""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    signature: Signature | None = None
    instances: int = 0
    device: str = ""
    providers: tuple[tuple[str, Mapping[str, str]], ...] = ()
    config: bytes | None = None
    limits: Limits = DEFAULT_LIMITS


@dataclass(slots=True)
class Loaded:
    """What became of the models that were asked for, by name and in that order; ``failed`` has the reasons. A
    model of which only some versions failed is among ``models``; its own ``failed`` tells them."""

    models: dict[str, Target] = field(default_factory=dict)
    failed: dict[str, LoadError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Repository:
    """A folder of model folders, by a ``name`` that clients may choose it by. ``controlled``: whether they
    may load and unload its models; ``overrides``: what they may put in place of a model's own when they
    load it, nothing, its configuration, or its files too; ``watched``: which models follow their files."""

    path: Path
    controlled: bool = False
    name: str = ""
    overrides: Literal["none", "config", "files"] = "none"
    watched: frozenset[str] | Literal["*"] = frozenset()

    def names(self) -> list[str]:
        """The models that the folder holds now. Raises ``LoadError`` where it cannot be read."""
        try:
            folders = sorted(entry.name for entry in self.path.iterdir() if entry.is_dir())
        except OSError as error:
            raise LoadError(f"model repository {self.path}: {error.strerror}") from error
        return [name for name in folders if not name.startswith(".")]

    def holds(self, name: str) -> bool:
        """Whether the folder holds a model ``name`` now, which may be any text that a client has sent."""
        # os.path, because pathlib raises for a name that is too long to be one
        return is_model_name(name) and os.path.isdir(self.path / name)

    def source(self, name: str) -> ModelSource:
        """Where model ``name`` is, or would be."""
        return ModelSource(name, self.path / name)


def is_model_name(name: str) -> bool:
    """Whether a model folder may be called ``name``."""
    return bool(name) and not name.startswith(".") and "/" not in name


def find_models(folder: Path, names: Iterable[str] | Literal["*"] = ALL) -> list[ModelSource]:
    """The models in repository ``folder`` by name, or those of ``names`` in that order, and then the models
    there that these need.

    A name without a folder is listed anyway and fails when it is loaded. Raises ``LoadError``
    where the repository cannot be read.
    """
    repository = Repository(folder)
    if names == ALL:
        return [repository.source(name) for name in repository.names()]
    sources = {name: repository.source(name) for name in names}
    waiting = list(sources.values())
    while waiting:
        for name in needed_models(waiting.pop(0)):
            if name not in sources and repository.holds(name):
                sources[name] = repository.source(name)
                waiting.append(sources[name])
    return list(sources.values())


def load_models(sources: Sequence[ModelSource], progress: Progress | None = None, threads: int = 0) -> Loaded:
    """Load every source, ``threads`` at a time (0: as many as the machine's cores allow).

    Never raises for a model; see :class:`Loaded`. Blocks until all are done.
    """
    lock = Lock()

    def report(name: str, state: State) -> None:
        if progress is not None:
            with lock:
                progress(name, state)

    def load(source: ModelSource) -> Target | LoadError:
        report(source.name, "loading")
        try:
            model = load_model(source)
        except LoadError as error:
            report(source.name, "failed")
            return error
        report(source.name, "ready")
        return model

    loaded = Loaded()
    with ThreadPoolExecutor(threads or default_instances(), thread_name_prefix="load") as pool:
        for source, result in zip(sources, pool.map(load, sources), strict=True):
            if isinstance(result, LoadError):
                loaded.failed[source.name] = result
            else:
                loaded.models[source.name] = result
    return loaded


def load_model(source: ModelSource, before: Target | None = None) -> Target:
    """Load one model with every version that its version policy chooses.

    Versions of ``before``, the model as it is served, are taken over where nothing has changed; it comes back
    itself where nothing has changed at all. Raises ``LoadError`` naming the file at fault where no version
    could be loaded, or where a folder cannot be read. Blocks.
    """
    try:
        # looked at before anything is read, so that a change meanwhile shows later
        origin = Origin(source, snapshot(source.path) if source.path and source.path.exists() else None)
        where, config, found = _located(source)
    except OSError as error:
        raise LoadError(str(error)) from error
    backend_name, backend = _backend(where, config, found)
    if source.path is None and backend.filename:
        raise LoadError(f"model '{source.name}': its backend needs a path")
    instances = 0 if backend.inline else config.instances or backend.instances or default_instances()
    if config.sequence_batching is not None:
        # each has slots of its own, so none is there unasked
        instances = config.instances or 1
    platform = config.platform or backend.metadata_platform or backend.platform
    config = replace(
        config,
        name=source.name,
        backend=backend_name,
        # of a platform that is called like the backend there is nothing to say
        platform=config.platform or ("" if backend.platform == backend_name else backend.platform),
        default_model_filename=config.default_model_filename or backend.filename,
        instances=instances,
    )
    missing = set(config.version_policy.specific) - set(found)
    failed = {number: f"{where}: there is no version {number}" for number in missing}
    try:
        samples = read_samples(source.name, where, config.warmup, config.max_batch_size > 0)
    except ValueError as error:
        raise LoadError(f"{where}: model_warmup: {error}") from error
    versions: list[Version] = []
    same = {} if before is None else _unchanged(before, origin)
    for number in config.version_policy.choose(found):
        try:
            versions.append(same.get(number) or _load_version(number, found[number], backend, config))
        except LoadError as error:
            failed[number] = str(error)
    if not versions:
        reasons = "; ".join(failed[number] for number in sorted(failed))
        stated = config_message(config, agreed_signature(where, config, None))
        raise LoadError(reasons or f"{where}: there is no version folder", failed, stated)
    if before is not None and not failed and not before.failed and versions == list(before.loaded.values()):
        return before
    return LocalModel(
        source.name,
        versions,
        failed=failed,
        platform=platform,
        description=config.description,
        parameters=source.parameters,
        config=config_message(config, versions[-1].signature),
        origin=origin,
        needs=needs(config),
        caches=config.response_cache,
        samples=samples,
    )


def examine_model(source: ModelSource) -> list[str]:
    """Why a model, or a version of it, would not be loaded, as far as its files tell: no engine is started,
    and nothing of the model's runs. Blocks."""
    try:
        where, config, found = _located(source)
        _, backend = _backend(where, config, found)
    except (LoadError, OSError) as error:
        return [str(error)]
    if source.path is None and backend.filename:
        return [f"model '{source.name}': its backend needs a path"]
    chosen = config.version_policy.choose(found)
    missing = sorted(set(config.version_policy.specific) - set(found))
    reasons = [f"{where}: there is no version {number}" for number in missing]
    if not (chosen or missing):
        reasons.append(f"{where}: there is no version folder")
    for number in chosen:
        try:
            backend.examine(_model_file(found[number], backend, config), config)
        except (LoadError, OSError) as error:
            reasons.append(str(error))
    return reasons


def needed_models(source: ModelSource) -> tuple[str, ...]:
    """The models that this one sends its requests through, as its configuration tells; none where that
    cannot be read. Blocks."""
    try:
        _, config, _ = _located(source)
    except (LoadError, OSError):
        return ()
    return needs(config)


def needs(config: ModelConfig) -> tuple[str, ...]:
    """The models of an ensemble's steps, each once."""
    return tuple(dict.fromkeys(step.model for step in config.ensemble))


def _unchanged(model: Target, origin: Origin) -> dict[int, Version]:
    """The versions of ``model`` that loading from ``origin`` would only load again."""
    old = model.origin
    if old is None or old.files is None or origin.files is None:
        return {}
    if old.stated != origin.stated or old.files.common != origin.files.common:
        return {}
    before, now = old.files.versions, origin.files.versions
    return {
        int(number): version
        for number, version in model.loaded.items()
        if before.get(int(number)) == now.get(int(number))
    }


def _load_version(number: int, path: Path, backend: Backend, config: ModelConfig) -> Version:
    file = _model_file(path, backend, config)
    for option in ("decoupled", "sequence_batching", "ensemble"):
        if getattr(config, option) and config.response_cache:
            raise LoadError(f"{file}: response_cache is not supported beside {option}")
    if config.decoupled and not backend.whole_requests:
        raise LoadError(f"{file}: decoupled is not supported by backend '{config.backend}'")
    sequences = config.sequence_batching
    if sequences is not None and sequences.states and backend.whole_requests:
        raise LoadError(f"{file}: sequence_batching: state is not supported by backend '{config.backend}'")
    if sequences is not None and sequences.iterative and config.backend != "python":
        raise LoadError(f"{file}: iterative_sequence is not supported by backend '{config.backend}'")
    # a Python model tells of no tensors but those that its clients see
    loaded = _loaded(file, backend, config if backend.whole_requests else with_unseen(config))
    found = loaded.signature
    if not backend.whole_requests:
        found = seen_signature(file, config, found)
    signature = agreed_signature(file, config, found)
    scheduling = Scheduling(config.dynamic_batching, config.limits, config.ragged, sequences)
    if backend.whole_requests:
        whole = cast(RequestInstance, loaded)
        return RequestVersion(
            config.name,
            number,
            whole,
            signature,
            config.input_reshapes,
            config.output_reshapes,
            scheduling,
        )
    instance = cast(Instance, loaded)
    run = None
    if config.input_reshapes or config.output_reshapes:
        run = reshaped(instance.run, config.input_reshapes, config.output_reshapes)
    return TensorVersion(config.name, number, instance, signature, config.instances, run, scheduling)


def _loaded(file: Path, backend: Backend, config: ModelConfig) -> Instance | RequestInstance:
    """The model in ``file``, on each of its devices."""
    if not config.devices or backend.whole_requests:
        return backend.load(file, config)
    return Spread(
        config.devices, lambda device: cast(Instance, backend.load(file, replace(config, device=device)))
    )


def _located(source: ModelSource) -> tuple[Path, ModelConfig, dict[int, Path]]:
    """What to call the place in messages, the configuration, and the versions that are there."""
    path = source.path
    if path is None:
        path = Path(source.name)
        return path, _stated(source, ModelConfig()), {1: path}
    if path.is_file():
        return path, _stated(source, ModelConfig(default_model_filename=path.name)), {1: path}
    if not path.is_dir():
        raise LoadError(f"{path}: there is no model folder or model file")
    config = read_config(path) if source.config is None else override_config(path, source.config)
    if config.name not in ("", path.name, source.name):
        raise LoadError(f"{path}: the configuration is of model '{config.name}', not of '{path.name}'")
    return path, _stated(source, config), _versions(path)


def _stated(source: ModelSource, config: ModelConfig) -> ModelConfig:
    """``config`` with what the source states over it."""
    device, devices = _devices(source, config)
    config = replace(
        config,
        backend=source.backend or config.backend,
        description=source.description,
        instances=source.instances or config.instances,
        device=device,
        devices=devices,
        providers=source.providers,
        limits=source.limits,
    )
    return config if source.signature is None else config.with_signature(source.signature)


def _devices(source: ModelSource, config: ModelConfig) -> tuple[str, tuple[str, ...]]:
    """The device of all instances, or that of each where they are not all on one."""
    where = source.path or Path(source.name)
    if source.device or not config.devices:
        return source.device or placed(where, config.device), ()
    there = {device: placed(where, device) for device in dict.fromkeys(config.devices)}
    devices = tuple(there[device] for device in config.devices)
    if source.instances:
        devices = tuple(islice(cycle(dict.fromkeys(devices)), source.instances))
    return (devices[0], ()) if len(set(devices)) == 1 else ("", devices)


def _backend(path: Path, config: ModelConfig, versions: Mapping[int, Path]) -> tuple[str, Backend]:
    name = config.backend or BACKEND_OF_PLATFORM.get(config.platform, config.platform)
    name = name or _backend_of_files(path, config, versions)
    backend = BACKENDS.get(name)
    if backend is None:
        raise LoadError(f"{path}: backend '{name}' is not one of {', '.join(BACKENDS)}")
    return name, backend


def _backend_of_files(path: Path, config: ModelConfig, versions: Mapping[int, Path]) -> str:
    """The backend that the model file tells, where no configuration does: the stated file by its suffix, else
    the file that the highest version has under a well-known name."""
    if config.default_model_filename or not versions:
        return BACKEND_OF_SUFFIX.get(Path(config.default_model_filename).suffix, "onnxruntime")
    known = {f"model{suffix}": backend for suffix, backend in BACKEND_OF_SUFFIX.items()}
    for number in sorted(versions, reverse=True):
        for name, backend in known.items():
            if (versions[number] / name).is_file():
                return backend
    raise LoadError(f"{path}: no backend is stated, and no version has one of {', '.join(known)}")


def _versions(folder: Path) -> dict[int, Path]:
    """The version folders by number; whatever has another name is no version."""
    found: dict[int, Path] = {}
    for entry in folder.iterdir():
        number = version_number(entry.name)
        if number is not None and entry.is_dir():
            found[number] = entry
    return found


def _model_file(version: Path, backend: Backend, config: ModelConfig) -> Path:
    if not backend.filename or version.is_file():
        return version
    file = version / (config.default_model_filename or backend.filename)
    if not file.is_file() and backend.other_filename and file.name == backend.filename:
        file = version / backend.other_filename
    if not file.is_file():
        raise LoadError(f"{file}: there is no such model file")
    return file
