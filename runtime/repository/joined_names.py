"""Names that join a model and a version by a dash, as grps clients write them."""

from __future__ import annotations

from collections.abc import Mapping

from interlingua.runtime.target import Target
from interlingua.schemas import InferenceError, ModelRef


class JoinedNames:
    """Resolves names among ``models``, the live mapping of the models that are served."""

    def __init__(self, models: Mapping[str, Target]) -> None:
        self._models = models
        self._resolved: dict[str, tuple[Target, ModelRef]] = {}

    async def resolve(self, text: str) -> ModelRef:
        """The model, or model and version, that ``text`` names; the model ``text`` if no served one matches.
        Models and versions may contain dashes themselves, so each model is tried. Raises UNAVAILABLE if an
        upstream that may have the version does not answer."""
        if text in self._models:
            return ModelRef(text)
        known = self._resolved.get(text)
        # a model that was loaded again may have other versions
        if known is not None and self._models.get(known[1].name) is known[0]:
            return known[1]
        failure: InferenceError | None = None
        for name, target in tuple(self._models.items()):
            if not text.startswith(f"{name}-"):
                continue
            named = ModelRef(name, text[len(name) + 1 :])
            try:
                if await _has(target, named.version):
                    self._resolved[text] = target, named
                    return named
            except InferenceError as error:
                failure = error if error.retryable else failure
        if failure is not None:
            raise failure
        return ModelRef(text)


async def _has(target: Target, version: str) -> bool:
    """Whether ``target`` has ``version``: its metadata list it, or there are metadata for it, since some
    servers list one version only. Raises as ``Target.metadata``."""
    if version in (await target.metadata()).versions:
        return True
    return version in (await target.metadata(version)).versions
