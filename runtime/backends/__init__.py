"""The seam between a local model and the engine that runs it, and the table of engines.

A backend loads one version of one model and returns an instance, which runs exactly the tensors that it gets:
versions, limits and batches are not its concern.

An :class:`Instance` is a function on tensors, called in a thread. A :class:`RequestInstance` gets the whole
request, waits on the event loop, and may answer more than once; it runs several requests at once for a
scheduler that claims a :class:`Place` in it.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol, cast

from interlingua.protocols.dialect import Capability
from interlingua.runtime.model_config.config import LoadError, ModelConfig
from interlingua.runtime.models.instance_answer import InstanceAnswer
from interlingua.runtime.target import ServerHooks, Target
from interlingua.schemas import (
    CancelToken,
    Context,
    Datatype,
    InferRequest,
    Leeway,
    Readiness,
    Signature,
    Tensor,
)


class Instance(Protocol):
    """One loaded version of a model. ``signature`` is the model's own (full shapes, -1 for a free dimension),
    None if only the configuration declares one. ``bounded``: the shapes of the inputs bound the duration of a
    run, and it may be on the event loop."""

    signature: Signature | None
    bounded: bool = False

    def run(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> tuple[Tensor, ...]:
        """Run once and return ``outputs`` in the requested order. The inputs fit the signature in name,
        datatype and shape. Several threads may call at once. Raises only ``InferenceError``: INVALID_TENSOR
        for a value that the engine cannot take, MODEL_FAILED with the engine's words."""

    def close(self) -> None:
        """Free the model. Nothing runs any more."""


class TableInstance(Instance, Protocol):
    """An instance whose files declare no names and datatypes of inputs. ``leeway`` is what its signature
    leaves open; ``default_outputs`` are those of a request that names none. ``holds_lock``: a run holds
    Python's global lock most of the time, so that it holds the event loop up from another thread, too."""

    leeway: Leeway
    holds_lock: bool
    default_outputs: tuple[str, ...]

    def unified(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """``inputs`` as the signature has them, so that requests share batches, unless that takes long.
        Raises INVALID_TENSOR."""


class Job(NamedTuple):
    """A request to be run with ``inputs`` as the instance sees them; ``outputs`` in the requested order."""

    request: InferRequest
    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...]


class Answers(Protocol):
    """The answers to one job, as they come; see :meth:`RequestInstance.stream`. ``aclose`` it in any case:
    before the final answer that cancels."""

    def __aiter__(self) -> Answers: ...

    async def __anext__(self) -> InstanceAnswer: ...

    async def aclose(self) -> None:
        """Take no more answers."""


class Place(Protocol):
    """One of the executors of a :class:`RequestInstance`, kept for its claimant."""

    @property
    def room(self) -> int:
        """How many jobs it can take in one run."""

    def run(self, jobs: Sequence[Job]) -> list[Answers]:
        """Run ``jobs``, at least one, in one execution of the model, and release the claim: the place is free
        again after the execution. Returns the answers to each job at once. Never raises; a job that cannot
        run fails alone, in its answers."""

    def release(self) -> None:
        """Release the claim without a run."""


class Composition(Protocol):
    """A model that calls other models of the server."""

    async def learn(self) -> tuple[bool, str]:
        """Discover whether these models are decoupled. Returns whether the composition is, and why it cannot
        run with them, empty if it can."""

    async def labels(self) -> Mapping[str, tuple[str, ...]]:
        """The class labels of its outputs, by these models; only of outputs that have any."""


class RequestInstance(Protocol):
    """One loaded version of a model that gets whole requests. ``decoupled``: it answers any number of times,
    zero included; else exactly once. ``places`` is the number of concurrent executions, 0 for a
    ``composition``, which runs nothing itself. ``batches``: the model has added dynamic batching to its own
    configuration."""

    signature: Signature | None
    decoupled: bool
    places: int
    batches: bool

    @property
    def composition(self) -> Composition | None:
        """The instance as a composition, None if it runs the model itself."""

    def stream(
        self, request: InferRequest, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]
    ) -> AsyncGenerator[InstanceAnswer, None]:
        """Run ``request`` with ``inputs`` and yield its answers as they come, ``outputs`` in the requested
        order if the model returns them; the last one is final, possibly without outputs. Heeds the request's
        cancel token, not its deadline. To stop iterating is to cancel. Raises only ``InferenceError``:
        CANCELLED, UNAVAILABLE while the model is not ready, MODEL_FAILED."""

    async def claim(self, cancel: CancelToken | None = None, place: int | None = None) -> Place:
        """Wait for a free place, in the order of claims, and keep it: any one, or number ``place`` below
        ``places``. Raises as :meth:`stream` does before its first answer."""

    def guard(self, context: Context) -> AbstractContextManager[None]:
        """Encloses all waiting for a request and its answers. Raises UNAVAILABLE for a call by a run that
        would wait for itself."""

    def join(self, hooks: ServerHooks) -> None:
        """Serve from now on."""

    def readiness(self, place: int | None = None) -> Readiness:
        """Whether a request would run now, on any place or on number ``place``."""

    async def close(self) -> None:
        """Finish what runs and free the model."""


TENSORS_ALONE = Capability(exact=frozenset(Datatype), ids="", parameters=frozenset(), answer_parameters=False)
"""What reaches a model that is a function on tensors, of every datatype."""


Load = Callable[[Path, ModelConfig], Instance | RequestInstance]
"""Loads the file or version folder at a path. Raises ``LoadError`` naming the path."""

Examine = Callable[[Path, ModelConfig], None]
"""Raises ``LoadError`` naming the path of a file that cannot be loaded."""


@dataclass(frozen=True, slots=True)
class Backend:
    """An engine: the module with its ``load``, imported when first needed.

    ``filenames`` are the model files to look for in a version folder, none for a model without files.
    ``inline``: a run is so short that a hop to another thread would cost more. ``instances`` is the default
    number, 0 for the machine's. ``whole_requests``: it loads a :class:`RequestInstance`, which decoupled
    models and sequences need. ``tables``: it loads a :class:`TableInstance`, and a model folder may have the
    file itself, without a version folder, as with MLServer and KServe. ``platform`` is its name in older
    configurations, ``metadata_platform`` its name in the protocol without a stated platform, empty for the
    same. ``deploys``: its models run in other processes, with the backends of their files; the module has
    ``load_model`` instead of ``load``. ``capability`` is what its models can carry. ``engine`` is the
    required package, which our ``extra`` installs; ``files`` the module whose ``examine`` checks a model
    without the engine, and whose ``is_model``, if any, recognizes one.
    """

    module: str
    platform: str
    filenames: tuple[str, ...] = ()
    inline: bool = False
    instances: int = 0
    whole_requests: bool = False
    tables: bool = False
    deploys: bool = False
    metadata_platform: str = ""
    capability: Capability = TENSORS_ALONE
    engine: str = ""
    extra: str = ""
    files: str = ""

    def load(self, path: Path, config: ModelConfig) -> Instance | RequestInstance:
        """Load the model at ``path``. Raises ``LoadError``, also if the engine is not installed."""
        return cast(Load, self._imported(str(path)).load)(path, config)

    def deploy(self, source: Any, options: Any, before: Target | None) -> Target:
        """Load the whole model of ``source``, a ``repository.files.ModelSource``, as ``load_model`` there
        does, with the backend's own ``options``."""
        found: Target = self._imported(source.name).load_model(source, options, before)
        return found

    def missing(self) -> str:
        """Why the engine cannot be used, as far as it is known without starting it; empty if it can."""
        if self.engine and find_spec(self.engine) is None:
            return self._missing(f"there is no {self.engine}")
        return ""

    def examine(self, path: Path, config: ModelConfig) -> None:
        """Raise ``LoadError`` if the model at ``path`` cannot be loaded, judged without starting the engine
        or running code of the model: by the installed package and the file."""
        if missing := self.missing():
            raise LoadError(f"{path}: {missing}")
        if self.files:
            cast(Examine, importlib.import_module(self.files).examine)(path, config)

    def recognizes(self, path: Path) -> bool:
        """Whether the file at ``path``, of a suffix of the backend, begins like one of its models."""
        module = importlib.import_module(self.files) if self.files else None
        return module is None or not hasattr(module, "is_model") or bool(module.is_model(path))

    def _imported(self, what: str) -> ModuleType:
        try:
            return importlib.import_module(self.module)
        except ImportError as error:
            raise LoadError(f"{what}: {self._missing(str(error))}") from error

    def _missing(self, why: str) -> str:
        install = f"; pip install 'interlingua[{self.extra}]'" if self.extra else ""
        return f"the engine for platform '{self.platform}' is missing: {why}{install}"


_TORCH = Backend(
    "interlingua.runtime.backends.torch",
    "pytorch_libtorch",
    ("model.pt", "model.pt2"),
    metadata_platform="pytorch_torchscript",
    capability=replace(TENSORS_ALONE, exact=frozenset(Datatype) - {Datatype.BYTES}),
    engine="torch",
    extra="torch",
    files="interlingua.runtime.backends.torch_file",
)

BACKENDS: dict[str, Backend] = {
    "onnxruntime": Backend(
        "interlingua.runtime.backends.onnxruntime",
        "onnxruntime_onnx",
        ("model.onnx",),
        metadata_platform="onnx_onnxv1",
        capability=replace(TENSORS_ALONE, text_only=True),
        engine="onnxruntime",
        extra="onnx",
        files="interlingua.runtime.backends.onnx_file",
    ),
    "identity": Backend("interlingua.runtime.backends.identity", "identity", inline=True),
    "python": Backend(
        "interlingua.runtime.backends.python",
        "python",
        ("model.py",),
        instances=1,
        whole_requests=True,
        capability=Capability(exact=frozenset(Datatype), streams="whole"),
        files="interlingua.runtime.backends.python_file",
    ),
    "ensemble": Backend("interlingua.runtime.backends.ensemble", "ensemble", whole_requests=True),
    "sklearn": Backend(
        "interlingua.runtime.backends.sklearn",
        "sklearn",
        ("model.skops", "model.joblib", "model.pickle", "model.pkl"),
        tables=True,
        engine="sklearn",
        extra="sklearn",
        files="interlingua.runtime.backends.sklearn_file",
    ),
    "xgboost": Backend(
        "interlingua.runtime.backends.xgboost",
        "xgboost",
        ("model.ubj", "model.json", "model.bst"),
        tables=True,
        engine="xgboost",
        extra="xgboost",
        files="interlingua.runtime.backends.xgboost_file",
    ),
    "lightgbm": Backend(
        "interlingua.runtime.backends.lightgbm",
        "lightgbm",
        ("model.txt", "model.bst"),
        tables=True,
        engine="lightgbm",
        extra="lightgbm",
        files="interlingua.runtime.backends.lightgbm_file",
    ),
    "ray": Backend(
        "interlingua.runtime.ray_serve.start",
        "ray",
        deploys=True,
        whole_requests=True,
        capability=Capability(exact=frozenset(Datatype), streams="whole"),
        engine="ray",
        extra="ray",
    ),
    "torch": _TORCH,
    "pytorch": _TORCH,  # Triton's name for it
}
"""Every backend by its name in configurations."""

WELL_KNOWN_FILES: tuple[tuple[str, str], ...] = tuple(
    (filename, name)
    for name in ("onnxruntime", "pytorch", "python", "sklearn", "xgboost", "lightgbm")
    for filename in BACKENDS[name].filenames
)
"""The model files without a stated backend, each with its backend; of several in one folder the first here.
:meth:`Backend.recognizes` decides where a name does not."""

BACKEND_OF_PLATFORM: dict[str, str] = {backend.platform: name for name, backend in BACKENDS.items()}
"""Older configurations state a platform, which implies the backend."""
