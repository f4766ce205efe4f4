"""The schema of models: repositories, single models, and their signatures."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from interlingua.protocols.section import Section, Text
from interlingua.runtime.ray_serve.options import DeploymentOptions
from interlingua.runtime.scheduling.policy import Limits
from interlingua.schemas import Signature, TensorSpec
from interlingua.translator.config.context import model_names
from interlingua.translator.config.ray import (
    PlacementOptions,
    RayOptions,
    Replicas,
    ResourcesOptions,
    deployment,
)
from interlingua.translator.config.references import (
    ExistingPath,
    Folder,
    KnownBackend,
    KnownDatatype,
    KnownUpstream,
    context_of,
    require,
)
from interlingua.translator.config.values import ParameterValue, distinct


def _device(value: str, info: ValidationInfo) -> str:
    if not re.fullmatch(r"cpu|cuda(:[0-9]+)?", value):
        raise ValueError(f"unknown device '{value}' (allowed: cpu, cuda, cuda:N)")
    there = context_of(info).installation.devices
    if (f"{value}:0" if value == "cuda" else value) not in there:
        raise ValueError(f"there is no device '{value}' here (there are: {', '.join(there)})")
    return value


Device = Annotated[str, AfterValidator(_device)]


class RepositoryOptions(Section):
    """A folder of models: `<model>/config.pbtxt` and `<model>/<version>/model.onnx`."""

    path: Folder
    """The folder. A relative path starts at the working directory of the process."""
    name: Text = Field(default=None, validate_default=True)
    """The name of the repository. The default is its path."""
    control: Literal["none", "explicit", "poll"] = "none"
    """How its models change while the server runs: never, by explicit loads and unloads of clients, or
    with their files, polled every `server.repository_poll_secs`. A model that is defined under `models`
    does not change."""
    overrides: Literal["none", "config", "files"] = "none"
    """The parts of a model that a client may override when it loads the model: none, its configuration, or
    its files too. Files are programs if the backend runs programs: allow them only to clients that you
    would let write into the folder."""
    allow_pickle: bool = False
    """Whether files of scikit-learn models may execute code when they are loaded: pickles (`model.joblib`,
    `model.pkl`), and files of skops with types that skops does not trust. Files that a client sends never
    may."""
    max_override_instances: Annotated[int, Field(ge=1)] = 16
    """The maximum number of instances, of all versions together, in a configuration that a client provides. A
    load with more is refused."""
    load: str | tuple[str, ...] = "*"
    """The models to load at start, and to poll with `control: poll`: `"*"` for all, or a list of names."""

    @field_validator("name", mode="before")
    @classmethod
    def _path_as_name(cls, value: Any, info: ValidationInfo) -> Any:
        return info.data.get("path", "?") if value is None else value

    @field_validator("load", mode="plain")
    @classmethod
    def _folders(cls, value: Any, info: ValidationInfo) -> str | tuple[str, ...]:
        if value == "*":
            return "*"
        if not isinstance(value, tuple) or not all(isinstance(name, str) for name in value):
            raise ValueError('must be "*" or a list of model names')
        if "path" in info.data:
            folders = model_names(info.data["path"])
            for name in value:
                require(f"model of '{info.data['path']}'", name, folders)
        return value

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models to load, as the folder is now. Raises ``OSError``."""
        return tuple(model_names(self.path)) if self.load == "*" else tuple(self.load)


class TensorOptions(Section):
    """One input or output of a signature."""

    name: Text
    """The tensor's name."""
    datatype: KnownDatatype
    """The element type, by its Open Inference Protocol name (`FP32`, `INT64`, `BYTES` ...)."""
    shape: tuple[Annotated[int, Field(ge=-1)], ...]
    """The full shape, batch included; -1 for a free dimension."""
    optional: bool = False
    """Whether a request may omit it: an input of a model with an `upstream`."""
    parameters: dict[Text, ParameterValue] = Field(default={})
    """Parameters of the tensor in metadata, such as its `content_type` for clients of MLServer."""

    def build(self) -> TensorSpec:
        return TensorSpec(self.name, self.datatype, self.shape, self.optional, parameters=self.parameters)


class SignatureOptions(Section):
    """The inputs and outputs of a model, for models that declare none or wrong ones."""

    inputs: tuple[TensorOptions, ...]
    """The inputs, in order."""
    outputs: Annotated[tuple[TensorOptions, ...], Field(min_length=1)]
    """The outputs, in order."""
    max_batch_size: Annotated[int, Field(ge=0)] = 0
    """Above 0, the first dimension of every shape is the batch, and must be -1."""
    labels: dict[str, tuple[str, ...]] = Field(default={})
    """Names of the classes, by output, in index order."""

    @field_validator("inputs", "outputs")
    @classmethod
    def _names(cls, tensors: tuple[TensorOptions, ...]) -> tuple[TensorOptions, ...]:
        distinct("tensor", tuple(tensor.name for tensor in tensors))
        return tensors

    @field_validator("outputs")
    @classmethod
    def _given(cls, outputs: tuple[TensorOptions, ...]) -> tuple[TensorOptions, ...]:
        for tensor in outputs:
            if tensor.optional:
                raise ValueError(f"output '{tensor.name}' cannot be optional: only inputs are")
        return outputs

    @field_validator("max_batch_size")
    @classmethod
    def _batch_first(cls, size: int, info: ValidationInfo) -> int:
        tensors = (*info.data.get("inputs", ()), *info.data.get("outputs", ()))
        for tensor in tensors if size else ():
            if tensor.shape[:1] != (-1,):
                raise ValueError(f"with {size}, the shape of '{tensor.name}' must begin with -1, the batch")
        return size

    @field_validator("labels")
    @classmethod
    def _labelled_outputs(
        cls, labels: dict[str, tuple[str, ...]], info: ValidationInfo
    ) -> dict[str, tuple[str, ...]]:
        if "outputs" in info.data:
            for name in labels:
                require("output", name, (output.name for output in info.data["outputs"]))
        return labels

    def build(self) -> Signature:
        inputs = tuple(map(TensorOptions.build, self.inputs))
        outputs = tuple(
            replace(tensor.build(), labels=self.labels.get(tensor.name, ())) for tensor in self.outputs
        )
        return Signature(inputs, outputs, self.max_batch_size)


class ModelOptions(Section):
    """A model as clients see it, run here (`backend`) or by a remote server (`upstream`)."""

    backend: KnownBackend | None = None
    """The engine that runs it here."""
    upstream: KnownUpstream | None = Field(default=None, validate_default=True)
    """The server that runs it, by its name under `upstreams`."""
    path: ExistingPath | None = Field(default=None, validate_default=True)
    """With `backend`: a model's repository folder, or a single model file. A relative path starts at the
    working directory of the process."""
    device: Device | None = None
    """With `backend`: the device, `cpu`, `cuda` or `cuda:N`. The default is the one in the model's
    config.pbtxt, else an available GPU that the engine can use, else `cpu`."""
    providers: tuple[str, ...] = ()
    """With `backend: onnxruntime`: ONNX Runtime's execution providers, the preferred first. The default
    depends on the device."""
    instances: Annotated[int, Field(ge=1)] | None = None
    """With `backend`: the number of requests that run concurrently. The default is the one in the model's
    config.pbtxt, else one per CPU, at most 4; for Python models one."""
    max_queue_requests: Annotated[int, Field(ge=0)] | None = None
    """With `backend`: the maximum number of queued requests, 0 for no limit; further requests are refused.
    The default is 10000."""
    max_queue_bytes: Annotated[int, Field(ge=0)] | None = None
    """With `backend`: the maximum size of queued inputs, 0 for no limit. The default is 1073741824 (1
    GiB). A larger request may wait in an empty queue."""
    max_concurrent_requests: Annotated[int, Field(ge=0)] | None = None
    """With `backend`: the maximum number of queued and running requests. The default is 0, no limit."""
    max_inline_run_us: Annotated[int, Field(ge=0)] | None = None
    """With `backend`: the longest run on the event loop instead of in a thread, in microseconds; 0 for none.
    The default is the server's."""
    allow_pickle: bool | None = None
    """With `backend: sklearn`: whether the file may execute code when it is loaded: a pickle
    (`model.joblib`, `model.pkl`), or a file of skops with types that skops does not trust. The default is
    `false`."""
    replicas: Replicas | None = None
    """With `backend: ray`: the number of replicas, or the bounds of a number that follows the load. The
    default is 1."""
    resources: ResourcesOptions | None = None
    """With `backend: ray`: what each replica reserves of its node. The default is one CPU."""
    placement: PlacementOptions | None = None
    """With `backend: ray`: the nodes that replicas run on. The default is any."""
    max_ongoing_requests: Annotated[int, Field(ge=1)] | None = None
    """With `backend: ray`: the maximum number of requests under way at one replica; it should be above the
    preferred batch size. The default is 100."""
    max_queued_requests: Annotated[int, Field(ge=-1)] | None = None
    """With `backend: ray`: the maximum number of requests that wait in this process for a replica, -1 for no
    limit; further requests are refused. The default is 1000."""
    remote_model: str | None = None
    """With `upstream`: the name of the model there; an empty text is the server's default model, if its
    dialect has one. The default is its name here."""
    inputs: dict[str, str] = Field(default={})
    """With `upstream`: input names that clients use, to the names used there."""
    outputs: dict[str, str] = Field(default={})
    """With `upstream`: output names that clients use, to the names used there."""
    signature: SignatureOptions | None = Field(default=None, validate_default=True)
    """Its inputs and outputs, in the names that clients use. The default is the model's own signature."""
    strict_signature: bool = True
    """With `upstream`: whether to refuse a request that does not fit the signature. `false` forwards it,
    for servers with wrong metadata."""
    labels: dict[str, tuple[str, ...]] = Field(default={})
    """With `upstream`: names of the classes, by output, in index order. They extend the signature,
    declared here or the model's own."""
    format: dict[str, Literal["FORMAT_NHWC", "FORMAT_NCHW"]] = Field(default={})
    """With `upstream`: the memory layout of image inputs, `FORMAT_NHWC` or `FORMAT_NCHW`, by input. It
    extends the model's own configuration, for clients that read it there."""
    description: str = ""
    """A sentence for metadata."""
    parameters: dict[Text, ParameterValue] = Field(default={})
    """Further parameters in metadata of the Open Inference Protocol: text, numbers, true or false by name.
    The parameters of an upstream's own metadata are kept too."""
    required: bool = True
    """Whether the readiness of the server depends on this model."""

    @field_validator("upstream")
    @classmethod
    def _here_or_there(cls, upstream: str | None, info: ValidationInfo) -> str | None:
        backend = info.data.get("backend", "?")  # "?": an unknown one
        if upstream is None and backend is None:
            raise ValueError("is missing: a model has a 'backend' that runs it here, or an 'upstream'")
        if upstream is not None and backend is not None:
            raise ValueError("a model has a 'backend' or an 'upstream', not both")
        return upstream

    @field_validator(
        "path",
        "device",
        "providers",
        "instances",
        "max_queue_requests",
        "max_queue_bytes",
        "max_concurrent_requests",
        "max_inline_run_us",
        "allow_pickle",
    )
    @classmethod
    def _only_here(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("upstream") is not None:
            raise ValueError("only a model with a 'backend' has this key")
        return value

    @field_validator("replicas", "resources", "placement", "max_ongoing_requests", "max_queued_requests")
    @classmethod
    def _only_on_ray(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("backend", "ray") != "ray":
            raise ValueError("only a model with 'backend: ray' has this key")
        return value

    @field_validator("device")
    @classmethod
    def _of_this_machine(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("backend") == "ray":
            raise ValueError("is of this machine: a replica on Ray uses the GPUs in its resources")
        return value

    @field_validator("remote_model", "inputs", "outputs", "strict_signature", "labels", "format")
    @classmethod
    def _only_there(cls, value: Any, info: ValidationInfo) -> Any:
        if info.data.get("backend") is not None:
            raise ValueError("only a model with an 'upstream' has this key")
        return value

    @field_validator("remote_model")
    @classmethod
    def _named(cls, value: str | None, info: ValidationInfo) -> str | None:
        kind = context_of(info).nameless.get(info.data.get("upstream") or "")
        if value and kind is not None:
            raise ValueError(f"{kind} has no place for a name: a server has one model")
        return value

    @field_validator("path")
    @classmethod
    def _file(cls, path: str | None, info: ValidationInfo) -> str | None:
        backend = info.data.get("backend")
        if path is None and backend is not None and context_of(info).installation.backends[backend]:
            raise ValueError(f"is missing: backend '{backend}' loads a file")
        return path

    @field_validator("inputs", "outputs")
    @classmethod
    def _one_to_one(cls, names: dict[str, str]) -> dict[str, str]:
        distinct("name", tuple(names.values()))
        return names

    @field_validator("signature")
    @classmethod
    def _stated(cls, signature: SignatureOptions | None, info: ValidationInfo) -> SignatureOptions | None:
        if signature is None:
            backend = info.data.get("backend")
            if backend is not None and "path" in info.data and info.data["path"] is None:
                raise ValueError(f"is missing: backend '{backend}' has no file with a signature")
            return None
        for tensor in signature.inputs:
            if tensor.optional and info.data.get("backend") is not None:
                raise ValueError(
                    f"input '{tensor.name}' cannot be optional: only those of a model with an 'upstream' are"
                )
        for key, tensors in (("inputs", signature.inputs), ("outputs", signature.outputs)):
            for name in info.data.get(key, {}):
                if name not in {tensor.name for tensor in tensors}:
                    raise ValueError(f"has no '{name}', which {key} renames")
        return signature

    @field_validator("labels", "format")
    @classmethod
    def _of_the_signature(cls, added: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        signature: SignatureOptions | None = info.data.get("signature")
        if signature is None:
            return added
        kind = "output" if info.field_name == "labels" else "input"
        tensors = signature.outputs if kind == "output" else signature.inputs
        for name in added:
            require(kind, name, (tensor.name for tensor in tensors))
            if kind == "output" and name in signature.labels:
                raise ValueError(f"output '{name}' has labels in the signature, too")
        return added

    def limits(self, default: Limits) -> Limits:
        """The limits of the model; those that it does not state are ``default``."""
        stated = {
            "queue_requests": self.max_queue_requests,
            "queue_bytes": self.max_queue_bytes,
            "concurrent": self.max_concurrent_requests,
            "inline_run_us": self.max_inline_run_us,
        }
        return replace(default, **{name: limit for name, limit in stated.items() if limit is not None})

    def deployment(self, cluster: RayOptions | None) -> DeploymentOptions:
        """How a model with `backend: ray` is deployed."""
        return deployment(
            cluster,
            self.replicas,
            self.resources,
            self.placement,
            self.max_ongoing_requests,
            self.max_queued_requests,
        )
