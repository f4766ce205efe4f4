"""The states of a model's versions, in messages and in JSON, both ways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from interlingua.protocols.tfserving.codec import version_number
from interlingua.protocols.tfserving.grpc_messages import message_of
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    ModelRef,
    ModelState,
    ModelStatus,
    Readiness,
    ServerState,
    ServerStatus,
    VersionStatus,
    malformed,
)
from interlingua.schemas.tfserving import MESSAGES

RESPONSE: Any = message_of("GetModelStatusResponse")
_STATES = message_of("ModelVersionStatus").DESCRIPTOR.enum_types_by_name["State"]
_CODES = MESSAGES["tensorflow.serving.StatusProto"].DESCRIPTOR.fields_by_name["error_code"].enum_type

AVAILABLE = "AVAILABLE"

_STATE_OF: Mapping[ModelState, str] = {
    ModelState.READY: AVAILABLE,
    ModelState.LOADING: "LOADING",
    ModelState.UNLOADING: "UNLOADING",
    ModelState.UNAVAILABLE: "END",
    ModelState.UNKNOWN: "UNKNOWN",
}

_STATE_NAMED: Mapping[str, ModelState] = {
    **{name: state for state, name in _STATE_OF.items()},
    "START": ModelState.LOADING,
}

_UNLOADED = "unloaded"
"""The reason of a version that a client has unloaded, which is no error."""

_ANY_VERSION = 1
"""The number of a version that has a name, or none, as upstream servers may have it."""


class VersionState(NamedTuple):
    """One version: its number, state, and what went wrong."""

    version: int
    state: str
    error: str = "OK"
    message: str = ""


def states(status: ServerStatus, model: str, version: str) -> list[VersionState]:
    """The versions of ``model``, of which ``status`` has the requested one. Raises NOT_FOUND."""
    found = status.models.get(model) or ModelStatus(model)
    listed = [_state(each.version, each.state, each.reason) for each in found.versions]
    if not listed:
        which = f"version {version}" if version else "any versions"
        raise InferenceError(ErrorCode.NOT_FOUND, f"Could not find {which} of model {model}")
    return sorted(listed, reverse=True)


def _state(version: str, state: ModelState, reason: str) -> VersionState:
    number = version_number(version)
    failed = state is ModelState.UNAVAILABLE and reason not in ("", _UNLOADED)
    return VersionState(
        _ANY_VERSION if number is None else number,
        _STATE_OF[state],
        "UNKNOWN" if failed else "OK",
        reason if failed else "",
    )


def write_message(found: Iterable[VersionState]) -> bytes:
    """A ``GetModelStatusResponse``."""
    response = RESPONSE()
    for each in found:
        status = response.model_version_status.add(version=each.version, state=each.state)
        status.status.error_code = each.error
        status.status.error_message = _text(each.message)
        status.status.SetInParent()
    return bytes(response.SerializeToString())


def read_message(message: Any) -> list[VersionState]:
    """The versions in a ``GetModelStatusResponse``."""
    return [
        VersionState(
            each.version,
            _name(_STATES, each.state),
            _name(_CODES, each.status.error_code),
            each.status.error_message,
        )
        for each in message.model_version_status
    ]


def _name(enum: Any, number: int) -> str:
    value = enum.values_by_number.get(number)
    return str(number) if value is None else str(value.name)


def document(found: Iterable[VersionState]) -> dict[str, Any]:
    """The document of these versions. As in protobuf's JSON, 64-bit integers are strings."""
    return {
        "model_version_status": [
            {
                "version": str(each.version),
                "state": each.state,
                "status": {"error_code": each.error, "error_message": _text(each.message)},
            }
            for each in found
        ]
    }


def read_document(given: Mapping[str, Any]) -> list[VersionState]:
    """The versions in a document. Raises MALFORMED."""
    try:
        return [
            VersionState(
                int(each["version"]),
                str(each["state"]),
                str(each.get("status", {}).get("error_code", "OK")),
                str(each.get("status", {}).get("error_message", "")),
            )
            for each in given["model_version_status"]
        ]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise malformed(f"the status is not that of a model: {error!r}") from None


def status_of(model: str, found: Iterable[VersionState]) -> ServerStatus:
    """What a server reports of the versions of ``model``."""
    versions = [
        VersionStatus(str(each.version), _STATE_NAMED.get(each.state, ModelState.UNKNOWN), each.message)
        for each in sorted(found)
    ]
    return ServerStatus("", ServerState.READY, 0, {model: ModelStatus(model, b"", tuple(versions))})


def readiness(model: ModelRef, found: Iterable[VersionState]) -> Readiness:
    """Whether the requested version is available, or any version if none is requested, and which."""
    reasons: list[str] = []
    version = ""
    for each in found:
        version = version or str(each.version)
        if each.state == AVAILABLE:
            return Readiness(True, version=str(each.version))
        reasons.append(each.message or f"version {each.version} is in state {each.state}")
    reason = "; ".join(reasons) or "it has no versions"
    return Readiness(False, f"model '{model.name}' is not ready: {reason}", version=version)


def _text(words: str) -> str:
    # a reason may quote text that is not Unicode
    return words.encode(errors="backslashreplace").decode()
