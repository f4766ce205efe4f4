"""What an upstream reports about a model, in the names of our clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from interlingua.runtime.model_config.config import ModelConfig
from interlingua.runtime.model_config.message import config_message
from interlingua.runtime.upstream.attributes import Attributes
from interlingua.runtime.upstream.config import fetch_config, read_config, shown_config
from interlingua.runtime.upstream.counts import UpstreamCounts
from interlingua.runtime.upstream.names import UpstreamNames
from interlingua.runtime.upstream.pool.unanswered import UnansweredError
from interlingua.runtime.upstream.reading import read_from
from interlingua.runtime.upstream.signature import UpstreamSignature
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    ModelMetadata,
    ModelRef,
    ModelState,
    Operation,
    Parameter,
    Readiness,
    ServerStatus,
    VersionStatus,
)


class UpstreamReports:
    """On the model that our clients call ``name``. ``description`` and ``parameters`` complete the metadata,
    ``attributes`` the configuration; ``counts`` are the statistics."""

    def __init__(
        self,
        name: str,
        upstream: Upstream,
        names: UpstreamNames,
        signatures: UpstreamSignature,
        counts: UpstreamCounts,
        *,
        description: str,
        parameters: Mapping[str, Parameter],
        attributes: Attributes,
    ) -> None:
        self._name = name
        self._upstream = upstream
        self._names = names
        self._signatures = signatures
        self._counts = counts
        self._description = description
        self._parameters = parameters
        self._attributes = attributes
        self._remote = signatures.remote
        self._declared = signatures.declared

    async def metadata(self, version: str = "") -> ModelMetadata:
        """The upstream's metadata in our clients' names."""
        try:
            found: ModelMetadata = await self._query(Operation.MODEL_METADATA, version)
        except InferenceError as error:
            # a declared signature replaces metadata that this upstream does not have
            unanswered = isinstance(error, UnansweredError) or error.code is ErrorCode.UNSUPPORTED
            if self._declared is None or not unanswered:
                raise
            found = ModelMetadata(self._remote, self._declared)
        signature = self._declared or self._names.to_local(found.signature)
        return replace(
            found,
            name=self._name,
            signature=signature,
            description=self._description or found.description,
            parameters={**found.parameters, **self._parameters},
        )

    async def versions(self, metadata: ModelMetadata) -> tuple[VersionStatus, ...]:
        """The versions that the upstream reports, else those of its metadata, else the one that answers."""
        if self._upstream.offers(Operation.STATUS):
            reported: ServerStatus = await self._query(Operation.STATUS, "")
            if reported.models and (found := reported.models[self._remote].versions):
                return tuple([replace(each, statistics=self._counts.of(each.version)) for each in found])
        versions = metadata.versions or (self._counts.answered,)
        return tuple([VersionStatus(each, ModelState.READY, "", self._counts.of(each)) for each in versions])

    async def version(self, version: str) -> VersionStatus | None:
        """The status of ``version``, which the metadata may lack; None if the upstream does not know it."""
        if not self._upstream.offers(Operation.MODEL_READY):
            return None
        reported: Readiness = await self._query(Operation.MODEL_READY, version)
        if not reported.ready and not reported.version:
            return None
        state = ModelState.READY if reported.ready else ModelState.UNAVAILABLE
        return VersionStatus(reported.version or version, state, reported.reason)

    async def ready(self, version: str = "") -> Readiness:
        """Whether the upstream reports the model as ready. A server without such a call is ready if it
        accepts connections and the signature is declared."""
        try:
            reported: Readiness = await self._query(Operation.MODEL_READY, version)
        except InferenceError as error:
            if self._declared is not None and isinstance(error, UnansweredError):
                return Readiness(True)
            return Readiness(False, f"model '{self._name}': {error.message}")
        if not reported.ready:
            return Readiness(False, reported.reason or f"model '{self._name}' is not ready")
        self._upstream.unloaded.found(self._remote)
        return reported

    async def config(self, metadata: ModelMetadata) -> bytes:
        """The upstream's configuration as our clients see it: from its metadata, else requested, else made of
        the metadata. No request if a signature is declared: such an upstream reports little."""
        stated = read_config(metadata.config)
        if stated is None and self._declared is None:
            stated = await fetch_config(self._upstream, ModelRef(self._remote))
        signature = (await self._signatures.of("")).local
        if stated is None:
            made = ModelConfig(name=self._name, platform=metadata.platform, stated=self._attributes.stated())
            return config_message(made, signature)
        names = self._names.inputs_back, self._names.outputs_back
        return shown_config(stated, self._name, *names, signature, self._attributes)

    async def _query(self, operation: Operation, version: str) -> Any:
        model, declared = ModelRef(self._remote, version), self._declared is not None
        return await read_from(self._upstream, operation, model, dispensable=declared)
