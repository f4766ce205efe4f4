"""The answers of all endpoints except inference: a status and text.

The texts are those of the original servers, which clients show and match on; the codes of errors in general
belong to ``status``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from interlingua.protocols.dialect import Opened
from interlingua.protocols.grps.flavors import Flavor
from interlingua.protocols.grps.message import OK, GrpsMessage, Kind, Status, StatusFlag
from interlingua.protocols.grps.options import PredictOptions
from interlingua.protocols.grps.status import failure
from interlingua.schemas import Deployment, ErrorCode, InferenceError, Operation, Readiness
from interlingua.schemas.bounded_text import shortened

DONE = GrpsMessage(status=OK)

_NOT_READY = Status(503, "Service Unavailable", StatusFlag.FAILURE)
_INFERENCE = frozenset({Operation.INFER, Operation.INFER_STREAM})


class StatusError(InferenceError):
    """A refusal with a ``status`` of its own. ``in_stream``: a caller that requested a stream gets it there,
    else as a plain answer."""

    def __init__(self, status: Status, *, in_stream: bool = True) -> None:
        super().__init__(ErrorCode.MALFORMED, status.msg)
        self.status = replace(status, msg=self.message)
        self.in_stream = in_stream


def bad_request(text: str, *, in_stream: bool = True) -> StatusError:
    """A refusal with the code 400 and ``text``."""
    return StatusError(Status(400, text, StatusFlag.FAILURE), in_stream=in_stream)


def in_stream(error: InferenceError) -> bool:
    """Whether a caller that requested a stream gets ``error`` there."""
    return not isinstance(error, StatusError) or error.in_stream


def is_unparsable(opened: Opened[Any] | None, error: InferenceError) -> bool:
    """Whether the bytes of a request do not parse. Most endpoints answer that in the form of their transport,
    not in band."""
    return opened is None and error.code is ErrorCode.MALFORMED and not isinstance(error, StatusError)


def no_metadata(flavor: Flavor) -> StatusError:
    """The refusal for metadata of an unknown model."""
    return StatusError(Status(404, flavor.no_metadata, StatusFlag.FAILURE))


def failed(
    flavor: Flavor, error: InferenceError, operation: Operation | None = None, model: str = ""
) -> GrpsMessage:
    """The answer for ``error``, of ``operation`` on the requested ``model`` where they are known."""
    if isinstance(error, StatusError):
        status = error.status
    else:
        status = failure(error, flavor.name)
        if error.code is ErrorCode.NOT_FOUND and model:
            if operation in _INFERENCE:
                status = Status(500, flavor.unknown_model.format(shortened(model)), StatusFlag.FAILURE)
            elif operation is Operation.DEPLOYMENT:
                status = Status(404, flavor.no_metadata, StatusFlag.FAILURE)
    return GrpsMessage(status=status)


def failure_code(flavor: Flavor, error: InferenceError, operation: Operation | None) -> int:
    """The code in the answer of :func:`failed` for a model, for the log."""
    status = failed(flavor, error, operation, "-").status
    return 0 if status is None else status.code


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
