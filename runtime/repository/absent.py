"""The status of models that are not served as their files are: loading, failed, unloaded, not renewed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.target import Target
from interlingua.schemas import ModelState, ModelStatus, VersionStatus


@dataclass(frozen=True, slots=True)
class Absent:
    """A known model that is not served; ``blocks`` is why the server is not ready without it, empty for one
    that a client unloaded."""

    status: ModelStatus
    blocks: str


def absent_by(name: str, error: LoadError, known_config: bytes = b"") -> Absent:
    """A model that could not be loaded, by ``error``; ``known_config`` is of an earlier load."""
    versions = tuple(
        VersionStatus(str(number), ModelState.UNAVAILABLE, reason)
        for number, reason in sorted(error.versions.items())
    )
    status = ModelStatus(name, error.config or known_config, versions)
    return Absent(status, f"model '{name}' could not be loaded: {error}")


def partial_failure(model: Target) -> LoadError:
    """The failed versions of ``model`` as one error."""
    reasons = {int(number): reason for number, reason in model.failed.items()}
    return LoadError("; ".join(reasons[number] for number in sorted(reasons)), reasons)


def all_in(status: ModelStatus, state: ModelState, reason: str = "") -> ModelStatus:
    versions = tuple(replace(version, state=state, reason=reason) for version in status.versions)
    return replace(status, versions=versions)


def not_renewed(status: ModelStatus, failure: LoadError) -> ModelStatus:
    """The ``status`` of a model that is still served although its last load failed."""
    versions = {int(version.version): version for version in status.versions}
    for number, version in versions.items():
        # a failure that is of no version is of them all
        reason = failure.versions.get(number, "" if failure.versions else str(failure))
        if reason and version.state is ModelState.READY:
            versions[number] = replace(version, reason=f"not loaded again: {reason}")
    for number, reason in failure.versions.items():
        versions.setdefault(number, VersionStatus(str(number), ModelState.UNAVAILABLE, reason))
    return replace(status, versions=tuple(versions[number] for number in sorted(versions)))
