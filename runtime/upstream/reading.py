"""Calls that only read, where a server of the upstream may be about to stop.

Contract: servers report themselves, or their models, as not ready before they stop. As long as another server
works, its answer counts.
"""

from __future__ import annotations

from typing import Any

from interlingua.runtime.upstream.pool.unanswered import UnansweredError
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import ErrorCode, InferenceError, Operation, Readiness


async def read_from(
    upstream: Upstream, operation: Operation, argument: Any, *, dispensable: bool = False
) -> Any:
    """The result of ``operation``, which only reads. It is requested again if its server answers that it is
    unavailable, or the model not ready, and probes show that a server of ``upstream`` leaves while another
    one works. Raises as :meth:`Upstream.call`, whose ``dispensable`` it has."""
    try:
        answer = await upstream.call(operation, argument, dispensable=dispensable)
        negative = isinstance(answer, Readiness) and not answer.ready
        if not negative or not await upstream.pool.examine():
            return answer
    except UnansweredError:
        raise
    except InferenceError as error:
        if error.code is not ErrorCode.UNAVAILABLE or not await upstream.pool.examine():
            raise
    return await upstream.call(operation, argument, dispensable=dispensable)
