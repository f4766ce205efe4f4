"""The signature of an upstream's model, declared or discovered, and its leeway.

Requests are checked against it before they are sent. Metadata state less than a loaded model does: ``Leeway``
is the difference. A server may load another model under the same name at any time: no request is refused by
a signature that was discovered before it came. It is discovered again at most once in ``RENEWAL_SECS``, for
all requests that wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from interlingua.protocols.dialect import PassthroughNames
from interlingua.runtime.fetched import FetchedValues, lasting
from interlingua.runtime.models.validation import RequestCheck
from interlingua.runtime.upstream.attributes import Attributes
from interlingua.runtime.upstream.config import fetch_config, is_decoupled
from interlingua.runtime.upstream.names import UpstreamNames
from interlingua.runtime.upstream.reading import read_from
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    Leeway,
    ModelMetadata,
    ModelRef,
    Operation,
    Signature,
)

RENEWAL_SECS = 0.1
"""The least time between two discoveries of a signature for requests that do not fit it."""

_KEPT = 64
"""The limit of versions: some servers take any text as one, so clients could make us keep any number."""


@dataclass(slots=True, eq=False)
class KnownSignature:
    """A signature, ``local`` in our clients' names and ``remote`` in the upstream's. ``check`` takes requests
    in our clients' names. Its latest discovery began at ``found``, a ``time.monotonic_ns()``; a ``renewal``
    may be running.
    ``decoupled``: whether the model answers any number of times, None while unknown. ``passing`` are the
    names in messages that pass through, by the caller's name of the model and the requested version."""

    local: Signature
    remote: Signature
    check: RequestCheck
    decoupled: bool | None = None
    found: int = 0
    renewal: asyncio.Task[KnownSignature] | None = None
    passing: dict[tuple[str, str], PassthroughNames] = field(default_factory=dict)

    def states(self, other: KnownSignature) -> bool:
        """Whether the server has stated the same as for ``other``."""
        stated = self.local, self.remote, self.check.leeway, self.decoupled
        return stated == (other.local, other.remote, other.check.leeway, other.decoupled)

    def __post_init__(self) -> None:
        self.local = replace(self.local, elsewhere=True)


@dataclass(slots=True, eq=False)
class UpstreamSignature:
    """The signatures of model ``remote`` of ``upstream``, by version; clients know it as ``model``. Tensors
    have two ``names``. ``declared``, in our clients' names, replaces the upstream's. ``widened`` is what the
    upstream's dialect carries as another datatype; ``attributes`` are added to every signature."""

    model: str
    upstream: Upstream
    remote: str
    names: UpstreamNames
    declared: Signature | None
    widened: Mapping[Datatype, Datatype]
    attributes: Attributes
    values: FetchedValues[KnownSignature] = field(default_factory=lambda: FetchedValues(_KEPT), init=False)

    def known(self, version: str) -> KnownSignature | None:
        """The signature of ``version``, unless it has yet to be discovered."""
        if self.declared is not None:
            version = ""  # the same for all
        return self.values.known.get(version)

    async def of(self, version: str) -> KnownSignature:
        """The signature of ``version``, discovered once; callers continue in order. Raises the upstream's
        error."""
        if self.declared is not None:
            version = ""
        return self.values.known.get(version) or await self.values.fetch(version, self._find)

    async def renewed(self, version: str, since: int = 0) -> KnownSignature:
        """The signature of ``version`` for a request that does not fit the known one: discovered after
        ``since``, a ``time.monotonic_ns()`` when the request came, or 0 for now. The known one stays if the
        upstream does not answer. Raises NOT_FOUND."""
        since = since or time.monotonic_ns()
        known = await self.of(version)
        while known.found < since and self.declared is None:
            if known.renewal is None:
                known.renewal = lasting(self._renew(version, known))
            known = await asyncio.shield(known.renewal)
        return known

    def forget(self) -> None:
        """The upstream's model may have been replaced."""
        self.values.clear()

    async def _renew(self, version: str, known: KnownSignature) -> KnownSignature:
        """``known`` if it is still so: what it has learned stays."""
        began = time.monotonic_ns()
        try:
            if (wait := known.found / 1e9 + RENEWAL_SECS - began / 1e9) > 0:
                await asyncio.sleep(wait)
                began = time.monotonic_ns()
            fresh = await self._find(version)
            if fresh.states(known):
                fresh = known
            self.values.put(version, fresh)
        except InferenceError as error:
            if error.code is ErrorCode.NOT_FOUND:
                self.forget()
                raise
            fresh = known
        finally:
            known.renewal = None
        fresh.found = began
        return fresh

    async def _find(self, version: str) -> KnownSignature:
        if self.declared is not None:
            return self._of_declared(self.declared)
        return await self._discover(version)

    def _of_declared(self, local: Signature) -> KnownSignature:
        room = Leeway(inputs=not local.inputs, parameters=True, carried=self.widened)
        remote = self.names.to_remote(local)
        # what a server does without an input, only its own metadata say
        remote = replace(remote, inputs=tuple([replace(spec, optional=False) for spec in remote.inputs]))
        local = self.attributes.labelled(self.model, local)
        return KnownSignature(local, remote, RequestCheck(self.model, local, room))

    async def _discover(self, version: str) -> KnownSignature:
        model, began = ModelRef(self.remote, version), time.monotonic_ns()
        metadata: ModelMetadata = await read_from(self.upstream, Operation.MODEL_METADATA, model)
        configured = self.upstream.offers(Operation.MODEL_CONFIG)
        config = await fetch_config(self.upstream, model)
        remote = metadata.signature if config is None else _configured(metadata.signature, config)
        room = self._leeway(metadata.leeway, remote, config, silent=configured and config is None)
        local = self.attributes.labelled(self.model, self.names.to_local(remote))
        back = self.names.inputs_back
        room = replace(room, shapes=frozenset(back.get(name, name) for name in room.shapes))
        check = RequestCheck(self.model, local, room)
        return KnownSignature(local, remote, check, is_decoupled(config), began)

    def _leeway(self, leeway: Leeway, signature: Signature, config: Any, *, silent: bool) -> Leeway:
        """The dialect's ``leeway`` and that of ``signature``. ``config`` is the upstream's
        ``inference.ModelConfig`` of the model, or None. Only a configuration states which inputs are
        optional; a ``silent`` server leaves that open. Metadata have one form for a scalar and for an unknown
        shape. A shape tensor has no batch dimension, though Triton's metadata give it one."""
        shapes = {spec.name for spec in signature.inputs if not spec.shape}
        if config is not None:
            shapes |= {tensor.name for tensor in config.input if tensor.is_shape_tensor}
        return replace(
            leeway,
            inputs=not signature.inputs,
            outputs=not signature.outputs,
            missing=silent or (config is not None and not config.input),
            shapes=leeway.shapes | shapes,
            parameters=True,  # of its dialect
            carried=self.widened,
        )


def _configured(metadata: Signature, config: Any) -> Signature:
    """``metadata`` with what Triton states only in the configuration: the batch limit and optional inputs."""
    batched = all(spec.shape[:1] == (-1,) for spec in (*metadata.inputs, *metadata.outputs))
    optional = {tensor.name for tensor in config.input if tensor.optional}
    inputs = tuple(
        replace(spec, optional=True) if spec.name in optional else spec for spec in metadata.inputs
    )
    limit = max(config.max_batch_size, 0) if batched else 0
    return Signature(inputs, metadata.outputs, metadata.max_batch_size or limit)
