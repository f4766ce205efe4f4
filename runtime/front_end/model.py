"""A local model of the runtime process, as a target of a front end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any

from interlingua.runtime.fetched import FetchedValues
from interlingua.runtime.front_end.link import ABSENT, RuntimeLink
from interlingua.runtime.front_end.snapshot import ServedModel
from interlingua.runtime.target import Target
from interlingua.schemas import (
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelStatus,
    Readiness,
    Signature,
)
from interlingua.schemas.version_number import version_number

_KEPT = 64
"""How many spellings of versions are remembered: clients choose them."""


class RuntimeModel(Target):
    """``served`` is its part of the last snapshot, while that is of this instance of the model."""

    reports_changes = True

    def __init__(self, name: str, link: RuntimeLink, served: ServedModel) -> None:
        self.name = name
        self.served = served
        self._link = link
        self._signatures: FetchedValues[Signature] = FetchedValues(_KEPT)

    async def infer(self, request: InferRequest) -> InferResponse:
        """See ``Target``. Raises also OVERLOADED if too much is on its way to the runtime process, and
        UNAVAILABLE if that has exited."""
        return await self._link.client.infer(request, self.name, headers=self.served.composite)

    def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """As :meth:`infer`."""
        return self._link.client.stream(request, self.name, headers=self.served.composite)

    async def decoupled(self, version: str = "") -> bool:
        found: bool = await self._call("decoupled", version)
        return found

    async def signature(self, version: str = "") -> Signature:
        known = self._signatures.known.get(version)
        return known or await self._signatures.fetch(version, partial(self._call, "signature"))

    async def renew_signature(self, version: str = "", since: int = 0) -> None:
        """A snapshot of a model that was loaded again may still be on its way."""
        self._signatures.clear()

    async def metadata(self, version: str = "") -> ModelMetadata:
        found: ModelMetadata = await self._call("metadata", version)
        return found

    async def status(self) -> ModelStatus:
        found: ModelStatus = await self._call("status")
        return found

    async def ready(self, version: str = "") -> Readiness:
        return self.readiness(version)

    def readiness(self, version: str = "") -> Readiness:
        if not self._link.connected:
            return Readiness(False, f"model '{self.name}' is not ready: {ABSENT}")
        versions = self.served.versions
        if not version:
            return versions[max(versions, key=int)]
        try:
            number = self.served.names.get(version) or version_number(version)
        except InferenceError as error:
            return Readiness(False, error.message)
        if number in versions:
            return versions[number]
        unknown = f"Request for unknown model: '{self.name}' version {number}"
        state = "not at ready state" if number in self.failed else "not found"
        return Readiness(False, f"{unknown} is {state}")

    @property
    def failed(self) -> Mapping[str, str]:  # type: ignore[override]
        """See ``Target``."""
        return self.served.failed

    async def close(self) -> None:
        """Nothing here to free: the model is in the runtime process."""

    async def _call(self, name: str, *arguments: object) -> Any:
        return await self._link.client.call(name, self.name, *arguments)
