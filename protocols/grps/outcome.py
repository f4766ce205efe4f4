"""What every endpoint of the dialect answers but for inference: a status, and text beside it.

The words are those of the original servers, which clients show and match on; the codes of errors in general
belong to ``status``.
"""

from __future__ import annotations

from typing import Any

from interlingua.protocols.dialect import Opened
from interlingua.protocols.grps.flavors import Flavor
from interlingua.protocols.grps.message import OK, GrpsMessage, Kind, Status, StatusFlag
from interlingua.protocols.grps.options import PredictOptions
from interlingua.protocols.grps.status import failure
from interlingua.schemas import Deployment, ErrorCode, InferenceError, Operation, Readiness

DONE = GrpsMessage(status=OK)

_NOT_READY = Status(503, "Service Unavailable", StatusFlag.FAILURE)
_INFERENCE = frozenset({Operation.INFER, Operation.INFER_STREAM})
_STATUS, _IN_STREAM = "grps_status", "grps_in_stream"


def refusal(status: Status) -> InferenceError:
    """An error that is told by exactly this status."""
    return InferenceError(ErrorCode.MALFORMED, status.msg, details={_STATUS: status})


def bad_request(text: str, in_stream: bool = True) -> InferenceError:
    """An error that is told by the code 400 and ``text``; not ``in_stream``: even where a stream was asked
    for it is told in an answer of its own."""
    details = {_STATUS: Status(400, text, StatusFlag.FAILURE), _IN_STREAM: in_stream}
    return InferenceError(ErrorCode.MALFORMED, text, details=details)


def in_stream(error: InferenceError) -> bool:
    """Whether ``error`` is told in the stream that was asked for."""
    return bool(error.details.get(_IN_STREAM, True))


def is_no_message(opened: Opened[Any] | None, error: InferenceError) -> bool:
    """Whether ``error`` says that the bytes of a request are no message at all, which most endpoints tell in
    the way of their transport, not in band."""
    return opened is None and error.code is ErrorCode.MALFORMED and _STATUS not in error.details


def no_metadata(flavor: Flavor) -> InferenceError:
    """That there is no such model to tell of."""
    return refusal(Status(404, flavor.no_metadata, StatusFlag.FAILURE))


def told(
    flavor: Flavor, error: InferenceError, operation: Operation | None = None, model: str = ""
) -> GrpsMessage:
    """``error``, of ``operation`` on the ``model`` that was asked for where they are known."""
    status: Status | None = error.details.get(_STATUS)
    if status is None:
        status = failure(error, flavor.name)
        if error.code is ErrorCode.NOT_FOUND and model:
            if operation in _INFERENCE:
                status = Status(500, flavor.unknown_model.format(model), StatusFlag.FAILURE)
            elif operation is Operation.DEPLOYMENT:
                status = Status(404, flavor.no_metadata, StatusFlag.FAILURE)
    return GrpsMessage(status=status)


def probed(state: Readiness) -> GrpsMessage:
    """The answer to a probe."""
    return DONE if state.ready else GrpsMessage(status=_NOT_READY)


def server_metadata(flavor: Flavor, options: PredictOptions, deployment: Deployment) -> GrpsMessage:
    """The whole configuration."""
    return _text(flavor.server_yaml(deployment, options))


def model_metadata(flavor: Flavor, deployment: Deployment) -> GrpsMessage:
    """The configuration of one model."""
    return _text(flavor.model_yaml(deployment))


def _text(text: str) -> GrpsMessage:
    return GrpsMessage(Kind.STR_DATA, status=OK, str_data=text)
