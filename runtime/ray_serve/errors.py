"""The errors of Ray and Serve, as ours."""

from __future__ import annotations

import asyncio
import concurrent.futures

from ray import exceptions as ray_errors
from ray.serve import exceptions as serve_errors

from interlingua.runtime.models.deadline import cancelled
from interlingua.schemas import ErrorCode, InferenceError, model_failed, unavailable


class ReplicaEndedError(Exception):
    """The replica of a sequence has ended."""


FAILURES = (
    ray_errors.RayError,
    serve_errors.RayServeException,
    serve_errors.RequestCancelledError,
    ReplicaEndedError,
    concurrent.futures.CancelledError,
    asyncio.InvalidStateError,
    StopAsyncIteration,
    OSError,
    RuntimeError,
    ValueError,
)
"""What a call of a replica may raise, apart from the cancellation of the caller."""


def busy(model: str) -> InferenceError:
    return InferenceError(
        ErrorCode.OVERLOADED, f"Exceeds maximum queue size: all replicas of model '{model}' are busy"
    )


def inference_error(error: BaseException, model: str) -> InferenceError:
    """``error`` of a call of a replica of ``model``. A replica that ended may have begun to run it."""
    if isinstance(error, serve_errors.BackPressureError):
        return busy(model)
    if isinstance(error, ReplicaEndedError):
        return unavailable(
            f"the replica of model '{model}' that ran this sequence has ended: start the sequence again",
            retryable=False,
        )
    if isinstance(error, (serve_errors.RequestCancelledError, ray_errors.TaskCancelledError)):
        return cancelled(model)
    if isinstance(error, concurrent.futures.CancelledError):
        return unavailable(f"the replicas of model '{model}' are not reachable")
    if isinstance(error, (ray_errors.ObjectStoreFullError, ray_errors.OutOfDiskError)):
        return InferenceError(ErrorCode.OVERLOADED, f"Ray's object store has no space for model '{model}'")
    if isinstance(error, ray_errors.RayTaskError) and not isinstance(error, ray_errors.RayActorError):
        return model_failed(f"model '{model}' failed on Ray: {type(error.cause).__name__}: {error.cause}")
    if isinstance(error, (ray_errors.RayError, StopAsyncIteration)):
        return unavailable(f"a replica of model '{model}' ended while it ran the request", begun=True)
    return unavailable(f"the replicas of model '{model}' are not available: {type(error).__name__}")
