"""The seam between a local model and the engine that runs it, and the table of engines.

A backend loads one version of one model and gives back an :class:`Instance`. What several versions
make together, who may ask and for how long one waits belong to ``runtime.models.model``; batching does not
belong here either: an instance runs exactly the tensors that it is given.

There are two kinds. An :class:`Instance` is a function on tensors, which is called in a thread. A
:class:`RequestInstance` sees the whole request, waits on the event loop, and may answer more than once; it
runs several requests at once for a scheduler that claims a :class:`Place` in it.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from interlingua.protocols.dialect import Capability
from interlingua.runtime.model_config.config import LoadError, ModelConfig
from interlingua.runtime.models.instance_answer import InstanceAnswer
from interlingua.runtime.target import ServerHooks
from interlingua.schemas import CancelToken, Context, Datatype, InferRequest, Readiness, Signature, Tensor


class Instance(Protocol):
    """One loaded version of a model.

    ``signature`` is what the model itself declares (full shapes, -1 for a free dimension), None where
    it declares nothing and the configuration must.
    """

    signature: Signature | None

    def run(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> tuple[Tensor, ...]:
        """Run once and return ``outputs`` in the order asked.

        The inputs agree with the signature in name, datatype and shape. Several threads may call at
        once. Raises nothing but ``InferenceError``: INVALID_TENSOR for a value that the engine cannot
        take, MODEL_FAILED with the engine's words.
        """

    def close(self) -> None:
        """Free the model. Nothing runs any more."""


class Job(NamedTuple):
    """A request to be run with ``inputs`` as the instance sees them; ``outputs`` in the order asked."""

    request: InferRequest
    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...]


class Answers(Protocol):
    """The answers to one job, as they come; see :meth:`RequestInstance.stream`. ``aclose`` it in any case:
    before the final answer that is to cancel."""

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
        """Run ``jobs``, at least one, in one execution of the model, and give up the claim: the place is
        free again when the execution has ended. Returns the answers to each job at once. Never raises; a
        job that cannot be run fails by itself, in its answers."""

    def release(self) -> None:
        """Give up the claim without a run."""


class Composition(Protocol):
    """A model that sends its requests through other models of the server."""

    async def learn(self) -> tuple[bool, str]:
        """Ask these models whether they are decoupled. Returns whether the composition is, and why it cannot
        run with them, empty where it can."""

    async def labels(self) -> Mapping[str, tuple[str, ...]]:
        """The class labels of its outputs, as these models know them; without outputs that have none."""


class RequestInstance(Protocol):
    """One loaded version of a model that gets whole requests.

    ``decoupled``: it answers any number of times, zero included; else exactly once. ``places`` is how many
    executions it runs at once, 0 for a ``composition``, which runs nothing itself. ``batches``: the model has
    added dynamic batching to its own configuration.
    """

    signature: Signature | None
    decoupled: bool
    places: int
    batches: bool

    @property
    def composition(self) -> Composition | None:
        """The instance as a composition, None where it runs the model itself."""

    def stream(
        self, request: InferRequest, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]
    ) -> AsyncGenerator[InstanceAnswer, None]:
        """Run ``request`` with ``inputs`` and give its answers as they come, ``outputs`` in the order asked
        as far as the model gives them; the last one is final, and may be that alone.

        Keeps to the request's cancel token, not to its deadline. To stop iterating is to cancel. Raises
        nothing but ``InferenceError``: CANCELLED, UNAVAILABLE while the model is not ready, MODEL_FAILED.
        """

    async def claim(self, cancel: CancelToken | None = None, place: int | None = None) -> Place:
        """Wait for a place that is free, in the order in which claims came, and keep it: any one, or the one
        with number ``place`` below ``places``. Raises as :meth:`stream` does before its first answer."""

    def guard(self, context: Context) -> AbstractContextManager[None]:
        """Stands around all waiting for a request and its answers. Raises UNAVAILABLE where another model's
        run has asked that would wait for itself."""

    def join(self, hooks: ServerHooks) -> None:
        """It is served from now on."""

    def readiness(self, place: int | None = None) -> Readiness:
        """Whether a request would be run now, on any place or on the one with number ``place``."""

    async def close(self) -> None:
        """Finish what runs and free the model."""


TENSORS_ALONE = Capability(
    exact=frozenset(Datatype),
    ids="",
    parameters=frozenset(),
    answer_parameters=False,
)
"""What reaches a model that is a function on tensors, of every datatype."""


Load = Callable[[Path, ModelConfig], Instance | RequestInstance]
"""Loads the file or version folder at a path. Raises ``LoadError`` naming the path."""

Examine = Callable[[Path, ModelConfig], None]
"""Raises ``LoadError`` naming the path where what is there cannot be loaded."""


@dataclass(frozen=True, slots=True)
class Backend:
    """An engine: the module whose ``load`` loads for it, imported when first needed.

    ``filename`` is the file it looks for in a version folder, empty where it needs none, and
    ``other_filename`` the one that will do where that is not there. ``inline``: a run is so short that a hop
    to another thread would cost more than it. ``instances`` is how many there are where nothing is stated, 0
    for as many as the machine suggests. ``whole_requests``: it loads a :class:`RequestInstance`, which
    decoupled models and sequences need. ``platform`` is what older configurations call it,
    ``metadata_platform`` what the protocol calls its models where no configuration
    names a platform, empty for the same. ``capability`` is what its models can take and give. ``engine`` is
    the package that has to be installed, which the ``extra`` of this one brings; ``files`` the module whose
    ``examine`` looks at a model without it.
    """

    module: str
    platform: str
    filename: str = ""
    inline: bool = False
    instances: int = 0
    whole_requests: bool = False
    metadata_platform: str = ""
    other_filename: str = ""
    capability: Capability = TENSORS_ALONE
    engine: str = ""
    extra: str = ""
    files: str = ""

    def load(self, path: Path, config: ModelConfig) -> Instance | RequestInstance:
        """Load the model at ``path``. Raises ``LoadError``, also where the engine is not installed."""
        try:
            module = importlib.import_module(self.module)
        except ImportError as error:
            raise LoadError(f"{path}: {self._missing(str(error))}") from error
        return cast(Load, module.load)(path, config)

    def examine(self, path: Path, config: ModelConfig) -> None:
        """Raise ``LoadError`` where the model at ``path`` cannot be loaded, as far as that shows without
        starting the engine or running anything of the model's: the engine is there, and the file is one for
        it."""
        if self.engine and find_spec(self.engine) is None:
            raise LoadError(f"{path}: {self._missing(f'there is no {self.engine}')}")
        if self.files:
            cast(Examine, importlib.import_module(self.files).examine)(path, config)

    def _missing(self, why: str) -> str:
        install = f"; pip install 'interlingua[{self.extra}]'" if self.extra else ""
        return f"the engine for platform '{self.platform}' is missing: {why}{install}"


_TORCH = Backend(
    "interlingua.runtime.backends.torch",
    "pytorch_libtorch",
    "model.pt",
    metadata_platform="pytorch_torchscript",
    other_filename="model.pt2",
    capability=replace(TENSORS_ALONE, exact=frozenset(Datatype) - {Datatype.BYTES}),
    engine="torch",
    extra="torch",
    files="interlingua.runtime.backends.torch_file",
)

BACKENDS: dict[str, Backend] = {
    "onnxruntime": Backend(
        "interlingua.runtime.backends.onnxruntime",
        "onnxruntime_onnx",
        "model.onnx",
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
        "model.py",
        instances=1,
        whole_requests=True,
        capability=Capability(exact=frozenset(Datatype), streams="whole"),
        files="interlingua.runtime.backends.python_file",
    ),
    "ensemble": Backend("interlingua.runtime.backends.ensemble", "ensemble", whole_requests=True),
    "torch": _TORCH,
    "pytorch": _TORCH,  # Triton's name for it
}
"""Every backend by the name that a configuration gives it."""

BACKEND_OF_SUFFIX: dict[str, str] = {
    ".onnx": "onnxruntime",
    ".pt": "pytorch",
    ".pt2": "pytorch",
    ".py": "python",
}
"""What runs a model file where no configuration says so; of several in one folder the first here."""

BACKEND_OF_PLATFORM: dict[str, str] = {backend.platform: name for name, backend in BACKENDS.items()}
"""Older configurations state a platform, which implies the backend."""
