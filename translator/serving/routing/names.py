"""A model under the names that the callers of a route use: of the model, its tensors, its versions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from interlingua.runtime.models.renames import (
    Renames,
    refuse_hidden,
    renamed,
    renamed_signature,
    reversed_names,
)
from interlingua.runtime.target import Target
from interlingua.schemas import (
    Context,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelStatus,
    Readiness,
    RequestedOutput,
    Signature,
    VersionStatus,
)
from interlingua.schemas.model_config import MODEL_CONFIG

OTHERS = "*"
"""The name for all other versions, and for none."""

_KEPT_SIGNATURES = 64


class Names:
    """``inputs``, ``outputs`` and ``versions`` map the callers' names to the model's, where they differ."""

    def __init__(
        self,
        inputs: Renames | None = None,
        outputs: Renames | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> None:
        self.inputs: Renames = inputs or {}
        self.outputs: Renames = outputs or {}
        self.versions: Mapping[str, str] = versions or {}
        self.plain = not (self.inputs or self.outputs or self.versions)
        self._inputs = reversed_names(self.inputs)
        self._outputs = reversed_names(self.outputs)
        # of several names for one version the first
        self._versions = reversed_names({name: self.versions[name] for name in reversed(list(self.versions))})
        self._signatures: dict[tuple[str, str], tuple[Signature, Signature]] = {}

    def version(self, requested: str) -> str:
        return self.versions.get(requested, self.versions.get(OTHERS, requested))

    def reported_version(self, ran: str, requested: str = "") -> str:
        """The name of the version that ``ran``, for a caller that ``requested`` one."""
        if requested and (
            requested in self.versions or OTHERS in self.versions or self.version(requested) == ran
        ):
            return requested
        named = self._versions.get(ran, ran)
        return ran if named in ("", OTHERS) else named

    def reported_versions(self, served: tuple[str, ...]) -> tuple[str, ...]:
        """The versions that a caller can request of a model that serves ``served``."""
        stated = [
            name
            for name, version in self.versions.items()
            if name not in ("", OTHERS) and (version in served or not version)
        ]
        same = [version for version in served if self.version(version) == version and version not in stated]
        return (*stated, *same) or served

    def signature(self, model: str, version: str, theirs: Signature) -> Signature:
        """The signature of ``version`` of ``model`` in the callers' names; the same object for the same
        one."""
        if not self.inputs and not self.outputs:
            return theirs
        known = self._signatures.get((model, version))
        if known is not None and known[0] is theirs:
            return known[1]
        ours = renamed_signature(theirs, self._inputs, self._outputs)
        # clients choose the versions, and some servers accept any text
        if len(self._signatures) >= _KEPT_SIGNATURES:
            self._signatures.clear()
        self._signatures[model, version] = theirs, ours
        return ours

    def status(self, status: ModelStatus, model: str) -> ModelStatus:
        versions = status.versions
        if self.versions:
            # if two have one name, the one that the name selects comes last, and stays
            named = sorted(versions, key=lambda each: each.version in self._versions)
            by_name = {self.reported_version(each.version): each for each in named}
            known = [replace(each, version=name) for name, each in by_name.items()]
            versions = tuple(sorted(known, key=lambda each: (len(each.version), each.version)))
        return replace(status, name=model, config=self.config(status.config, model), versions=versions)

    def config(self, config: bytes, model: str) -> bytes:
        """``config``, a serialized ``inference.ModelConfig``, in the names of callers."""
        if not config:
            return config
        message = MODEL_CONFIG.FromString(config)
        message.name = model
        for tensors, names in ((message.input, self._inputs), (message.output, self._outputs)):
            for tensor in tensors:
                tensor.name = names.get(tensor.name, tensor.name)
        written: bytes = message.SerializeToString(deterministic=True)
        return written

    def translated(self, request: InferRequest) -> InferRequest:
        """``request`` in the model's names. Raises INVALID_TENSOR for a name that callers do not use."""
        inputs, outputs, model = request.inputs, request.outputs, request.model
        refuse_hidden("input", [each.name for each in inputs], self.inputs, self._inputs, model)
        refuse_hidden("output", [each.name for each in outputs or ()], self.outputs, self._outputs, model)
        if outputs and self.outputs:
            outputs = tuple(self._translated_output(output) for output in outputs)
        return replace(
            request,
            version=self.version(request.version),
            inputs=renamed(inputs, self.inputs),
            outputs=outputs,
        )

    def _translated_output(self, output: RequestedOutput) -> RequestedOutput:
        return replace(output, name=self.outputs.get(output.name, output.name))

    def restored(self, response: InferResponse, request: InferRequest) -> InferResponse:
        response.outputs = renamed(response.outputs, self._outputs)
        response.version = self.reported_version(response.version, request.version)
        return response


class View(Target):
    """``target`` as ``model``, by other ``names``."""

    def __init__(self, target: Target, names: Names, model: str) -> None:
        self.name = target.name
        self._target = target
        self._names = names
        self._model = model

    async def infer(self, request: InferRequest) -> InferResponse:
        answer = await self._target.infer(self._names.translated(request))
        return self._names.restored(answer, request)

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        responses: Any = self._target.stream(self._names.translated(request))
        # an iterator that is not a generator has nothing to close
        async with aclosing(responses if hasattr(responses, "aclose") else _each(responses)) as answers:
            async for answer in answers:
                yield self._names.restored(answer, request)

    async def decoupled(self, version: str = "") -> bool:
        return await self._target.decoupled(self._names.version(version))

    async def signature(self, version: str = "") -> Signature:
        theirs = self._names.version(version)
        return self._names.signature(self.name, theirs, await self._target.signature(theirs))

    async def renew_signature(self, version: str = "", since: int = 0) -> None:
        await self._target.renew_signature(self._names.version(version), since)

    def count_undecoded(self, end: BaseException, version: str, began: int, context: Context) -> None:
        self._target.count_undecoded(end, self._names.version(version), began, context)

    async def metadata(self, version: str = "") -> ModelMetadata:
        theirs = self._names.version(version)
        metadata = await self._target.metadata(theirs)
        return replace(
            metadata,
            name=self._model,
            signature=self._names.signature(self.name, theirs, metadata.signature),
            versions=self._names.reported_versions(metadata.versions),
            config=self._names.config(metadata.config, self._model),
        )

    async def status(self) -> ModelStatus:
        return self._names.status(await self._target.status(), self._model)

    async def version_status(self, version: str) -> VersionStatus | None:
        return await self._target.version_status(self._names.version(version))

    async def ready(self, version: str = "") -> Readiness:
        return await self._target.ready(self._names.version(version))

    async def close(self) -> None:
        """Nothing of its own to close."""


async def _each(responses: Any) -> AsyncGenerator[InferResponse, None]:
    async for response in responses:
        yield response
