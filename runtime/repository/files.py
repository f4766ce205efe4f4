"""From files to models: single ONNX files, model folders and repositories of folders.

A model folder is laid out as for Triton and the TensorRT Inference Server: ``config.pbtxt`` (optional), label
files, and one numbered folder per version with the model file, whose name implies the backend if no
configuration does. A model that cannot be loaded does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Literal, cast

from interlingua.runtime.backends import (
    BACKEND_OF_PLATFORM,
    BACKENDS,
    Backend,
    Instance,
    RequestInstance,
    TableInstance,
)
from interlingua.runtime.backends.devices import all_placed
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
from interlingua.runtime.ray_serve.options import DeploymentOptions
from interlingua.runtime.repository.model_files import (
    backend_of_files,
    default_filename,
    model_file,
    sibling_versions,
    version_folders,
)
from interlingua.runtime.repository.model_folders import (
    is_model_name,
    model_folder,
    model_folders,
    sibling_folders,
)
from interlingua.runtime.repository.snapshot import Origin, Snapshot, snapshot
from interlingua.runtime.scheduling.policy import DEFAULT_LIMITS, Limits, Scheduling
from interlingua.runtime.target import Target, Version
from interlingua.schemas import Parameter, Signature, VersionPolicy

State = Literal["loading", "ready", "failed"]

Progress = Callable[[str, State], None]
"""Called with the name and state of each model, one call at a time, from the threads that load."""

ALL = "*"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """The place of a model, and settings that override its own configuration.

    ``path`` is a model folder or a single model file, None for a backend without files. An empty ``backend``
    is that of the model's configuration or model file; 0 ``instances`` is the configuration's number or
    :func:`default_instances`. ``ModelConfig`` describes ``device``, ``providers`` and ``limits``. ``config``
    is a serialized ``inference.ModelConfig`` that replaces the folder's own, ``versions`` override its
    policy. ``allow_pickle``: its files may be pickles, which execute code. ``ray`` is the deployment of a
    model that runs on Ray. ``siblings`` are folders of other versions, with MLServer's settings.
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
    versions: VersionPolicy | None = None
    limits: Limits = DEFAULT_LIMITS
    allow_pickle: bool = False
    ray: DeploymentOptions | None = None
    siblings: tuple[Path, ...] = ()

    def snapshot(self) -> Snapshot | None:
        """A snapshot of its files, None if there are none. Blocks. Raises ``OSError``."""
        if self.path is None or not self.path.exists():
            return None
        return snapshot(self.path, self.siblings)

    @property
    def followed(self) -> bool:
        """Whether a change of the files is loaded although the configuration names the model."""
        return self.ray is not None


@dataclass(slots=True)
class Loaded:
    """The requested models by name, in that order; ``failed`` has the reasons. A model of which only some
    versions failed is among ``models``."""

    models: dict[str, Target] = field(default_factory=dict)
    failed: dict[str, LoadError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Repository:
    """A folder of model folders; clients may choose it by ``name``. ``controlled``: clients may load and
    unload its models; ``overrides``: what they may replace when they load one; ``watched``: the models that
    follow their files; ``limits`` are those of every model; ``allow_pickle`` as in ``ModelSource``."""

    path: Path
    controlled: bool = False
    name: str = ""
    overrides: Literal["none", "config", "files"] = "none"
    watched: frozenset[str] | Literal["*"] = frozenset()
    limits: Limits = DEFAULT_LIMITS
    allow_pickle: bool = False

    def names(self) -> list[str]:
        """The models that the folder holds now. Raises ``LoadError`` if it is unreadable."""
        try:
            return list(model_folders(self.path))
        except OSError as error:
            raise LoadError(f"model repository {self.path}: {error.strerror}") from error

    def holds(self, name: str) -> bool:
        """Whether the folder holds a model ``name`` now; ``name`` may be any text of a client."""
        return is_model_name(name) and model_folder(self.path, name) is not None

    def folder(self, name: str) -> Path:
        """The folder of model ``name``, that of this name if there is none. Blocks."""
        return model_folder(self.path, name) or self.path / name

    def source(self, name: str) -> ModelSource:
        folder = self.folder(name)
        more = sibling_folders(self.path, folder)
        return ModelSource(name, folder, limits=self.limits, allow_pickle=self.allow_pickle, siblings=more)


def find_models(
    folder: Path,
    names: Iterable[str] | Literal["*"] = ALL,
    limits: Limits = DEFAULT_LIMITS,
    allow_pickle: bool = False,
) -> list[ModelSource]:
    """The models in repository ``folder``, each with ``limits`` and ``allow_pickle``: all, or those of
    ``names`` in that order and then the models there that they need. A name without a folder fails when it is
    loaded. Raises ``LoadError`` if the repository is unreadable."""
    repository = Repository(folder, limits=limits, allow_pickle=allow_pickle)
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
    """Load every source, ``threads`` at a time (0: as many as the machine's cores allow). Never raises for a
    model; see :class:`Loaded`. Blocks until all are done."""
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
    """Load one model with every version that its version policy chooses. Takes over unchanged versions of
    ``before``, the served model, and returns ``before`` itself if nothing has changed. Raises ``LoadError``
    naming the file at fault if no version could be loaded or a folder is unreadable. Blocks."""
    if source.ray is not None:
        return BACKENDS["ray"].deploy(source, source.ray, before)
    try:
        # looked at before anything is read, so that a change meanwhile shows later
        origin = Origin(source, source.snapshot())
        where, config, found = _located(source)
    except OSError as error:
        raise LoadError(str(error)) from error
    backend_name, backend = _backend(source, where, config, found)
    _check_instances(source, where, config, len(config.version_policy.choose(found)))
    platform = config.platform or backend.metadata_platform or backend.platform
    config = _completed(config, source.name, backend_name, backend, found)
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
        needs=config.needs,
        caches=config.response_cache,
        samples=samples,
        version_names={name: str(number) for name, number in config.version_names.items()},
    )


def examine_model(source: ModelSource) -> list[str]:
    """Why a model or a version would fail to load, judged by its files: no engine starts, no code of the
    model runs. Blocks."""
    if source.ray is not None:
        absent = BACKENDS["ray"].missing()
        return [f"{source.path}: {absent}"] if absent else examine_model(replace(source, ray=None))
    try:
        where, config, found = _located(source)
        _, backend = _backend(source, where, config, found)
    except (LoadError, OSError) as error:
        return [str(error)]
    chosen = config.version_policy.choose(found)
    missing = sorted(set(config.version_policy.specific) - set(found))
    reasons = [f"{where}: there is no version {number}" for number in missing]
    if not (chosen or missing):
        reasons.append(f"{where}: there is no version folder")
    for number in chosen:
        try:
            backend.examine(model_file(found[number], backend, config), config)
        except (LoadError, OSError) as error:
            reasons.append(str(error))
    return reasons


def needed_models(source: ModelSource) -> tuple[str, ...]:
    """The models that this one calls, by its configuration; none if that is unreadable. Blocks."""
    try:
        _, config, _ = _located(source)
    except (LoadError, OSError):
        return ()
    return config.needs


def sequence_idle_secs(source: ModelSource) -> float:
    """How long a sequence of the model lives without a request; 0 for a model without any whose requests have
    to reach the same process. Raises ``LoadError`` if the model cannot be deployed on other machines: an
    ensemble calls other models here. Blocks."""
    where, config, found = _located(source)
    name, _ = _backend(source, where, config, found)
    if config.ensemble or name == "ensemble":
        raise LoadError(f"{where}: an ensemble is not supported by backend 'ray'")
    batching = config.sequence_batching
    return 0.0 if batching is None or batching.iterative else batching.idle_us / 1e6


def _completed(
    config: ModelConfig, name: str, backend_name: str, backend: Backend, found: Mapping[int, Path]
) -> ModelConfig:
    """``config`` with what it leaves to the backend. ``found`` are the version folders."""
    instances = 0 if backend.inline else config.instances or backend.instances or default_instances()
    if config.sequence_batching is not None:  # each instance has slots of its own
        instances = config.instances or 1
    return replace(
        config,
        name=name,
        backend=backend_name,
        # a platform named like the backend would repeat it
        platform=config.platform or ("" if backend.platform == backend_name else backend.platform),
        default_model_filename=config.default_model_filename or default_filename(backend, found),
        instances=instances,
    )


def _check_instances(source: ModelSource, where: Path, config: ModelConfig, versions: int) -> None:
    """Raise ``LoadError`` for more instances than the limits permit, unless the operator states a number."""
    if source.instances:
        return
    count, limit, key = config.instances, source.limits.instances, "max_instances"
    if source.config is not None and count * versions > source.limits.override_instances:
        count, limit, key = count * versions, source.limits.override_instances, "max_override_instances"
    if count > limit:
        raise LoadError(f"{where}: instance_group has {count} instances, more than {key} permits ({limit})")


def _unchanged(model: Target, origin: Origin) -> dict[int, Version]:
    """The versions of ``model`` that are the same in ``origin``."""
    old = model.origin
    if old is None or _of_all_versions(old) != _of_all_versions(origin):
        return {}
    if old.files is None or origin.files is None:
        return {int(number): version for number, version in model.loaded.items() if old == origin}
    if old.files.common != origin.files.common:
        return {}
    before, now = old.files.versions, origin.files.versions
    return {
        int(number): version
        for number, version in model.loaded.items()
        if before.get(int(number)) == now.get(int(number))
    }


def _of_all_versions(origin: Origin) -> object:
    """What is stated of every version alike: others may be chosen now."""
    stated = origin.stated
    return replace(stated, versions=None) if isinstance(stated, ModelSource) else stated


def _load_version(number: int, path: Path, backend: Backend, config: ModelConfig) -> Version:
    file = model_file(path, backend, config)
    for option in ("decoupled", "sequence_batching", "ensemble"):
        if getattr(config, option) and config.response_cache:
            raise LoadError(f"{file}: response_cache is not supported together with {option}")
    if config.decoupled and not backend.whole_requests:
        raise LoadError(f"{file}: decoupled is not supported by backend '{config.backend}'")
    sequences = config.sequence_batching
    if sequences is not None and sequences.states and backend.whole_requests:
        raise LoadError(f"{file}: sequence_batching: state is not supported by backend '{config.backend}'")
    if sequences is not None and sequences.iterative and config.backend != "python":
        raise LoadError(f"{file}: iterative_sequence is not supported by backend '{config.backend}'")
    # a Python model declares only the tensors that its clients see
    loaded = _loaded(file, backend, config if backend.whole_requests else with_unseen(config))
    found = loaded.signature
    if not backend.whole_requests:
        found = seen_signature(file, config, found)
    signature = agreed_signature(file, config, found)
    scheduling = Scheduling(config.dynamic_batching, config.limits, config.ragged, sequences)
    if backend.whole_requests:
        whole = cast(RequestInstance, loaded)
        return RequestVersion(
            config.name, number, whole, signature, config.input_reshapes, config.output_reshapes, scheduling
        )
    instance = cast(Instance, loaded)
    run = None
    if config.input_reshapes or config.output_reshapes:
        run = reshaped(instance.run, config.input_reshapes, config.output_reshapes)
    table = cast(TableInstance, loaded) if backend.tables else None
    default_outputs = config.default_outputs
    if table is not None and not (default_outputs or config.outputs):
        default_outputs = table.default_outputs
    if not signature.output_names.keys() >= set(default_outputs):
        raise LoadError(
            f"{file}: predict_fn '{default_outputs[0]}' is not one of {', '.join(signature.output_names)}"
        )
    return TensorVersion(
        config.name, number, instance, signature, config.instances, run, scheduling, table, default_outputs
    )


def _loaded(file: Path, backend: Backend, config: ModelConfig) -> Instance | RequestInstance:
    if not config.devices or backend.whole_requests:
        return backend.load(file, config)
    return Spread(
        config.devices, lambda device: cast(Instance, backend.load(file, replace(config, device=device)))
    )


def _located(source: ModelSource) -> tuple[Path, ModelConfig, dict[int, Path]]:
    """A name of the place for messages, the configuration, and the version folders."""
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
    found = version_folders(path, config)
    if source.siblings:
        found, names = sibling_versions(source.siblings, path, config)
        config = replace(config, version_policy=VersionPolicy(latest=0), version_names=names)
    return path, _stated(source, config), found


def _stated(source: ModelSource, config: ModelConfig) -> ModelConfig:
    device, devices = source.device, tuple[str, ...]()
    if not device:
        where = source.path or Path(source.name)
        device, devices = all_placed(where, config.device, config.devices, source.instances)
    config = replace(
        config,
        backend=source.backend or config.backend,
        description=source.description,
        instances=source.instances or config.instances,
        device=device,
        devices=devices,
        providers=source.providers,
        limits=source.limits,
        allow_pickle=source.allow_pickle,
        version_policy=source.versions or config.version_policy,
    )
    return config if source.signature is None else config.with_signature(source.signature)


def _backend(
    source: ModelSource, path: Path, config: ModelConfig, versions: Mapping[int, Path]
) -> tuple[str, Backend]:
    name = config.backend or BACKEND_OF_PLATFORM.get(config.platform, config.platform)
    name = name or backend_of_files(path, config, versions)
    backend = BACKENDS.get(name)
    if backend is None:
        raise LoadError(f"{path}: backend '{name}' is not one of {', '.join(BACKENDS)}")
    if backend.deploys:
        raise LoadError(
            f"{path}: backend '{name}' is for models under 'models' in the server's configuration"
        )
    if source.path is None and backend.filenames:
        raise LoadError(f"model '{source.name}': its backend needs a path")
    return name, backend
