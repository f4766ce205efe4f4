"""What happens around a planned request: whether its caller may request it, which route it takes, whether it
is traced, and what its response and the logs get.

The pipeline does the same in the same order (``handler``, ``dispatch``). A filter without work for a listener
is not called. One that would refuse a request, or has more to do than a plan may, leaves it to the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from interlingua.schemas import Context, InferenceError
from interlingua.translator.serving.processor import RequestProcessor

Filter = Callable[[Context, str], bool]
"""Takes the context of a request and the model that it names. Whether the plan goes on with it."""


def _authentication(processor: RequestProcessor) -> Filter | None:
    authenticator = processor.authorization.authenticator
    if authenticator is None:
        return None

    def begin(context: Context, model: str) -> bool:
        try:
            authenticator.identify(context)
        except InferenceError:
            return False  # the pipeline refuses and records it
        return True

    return begin


def _admission(processor: RequestProcessor) -> Filter | None:
    authorization = processor.authorization
    if not processor.restricts_inference:
        return None

    def begin(context: Context, model: str) -> bool:
        try:
            authorization.admit("inference", context)
        except InferenceError:
            return False
        return True

    return begin


def _header_parameters(processor: RequestProcessor) -> Filter | None:
    parameters = processor.header_parameters
    return None if parameters is None else lambda context, model: not parameters.of(context.headers)


def _sampling(processor: RequestProcessor) -> Filter | None:
    tracer = processor.service.tracer
    if tracer is None:
        return None

    def begin(context: Context, model: str) -> bool:
        tracer.begin(context, model)
        context.sampling_decided = True
        return context.trace is None

    return begin


_FILTERS: Sequence[Callable[[RequestProcessor], Filter | None]] = (
    _authentication,
    _admission,
    _header_parameters,
    _sampling,
)
"""In the order in which they see a request."""


def filters_of(processor: RequestProcessor) -> tuple[Filter, ...]:
    """Those that have work for the requests of a listener, with its configuration of now."""
    found: list[Any] = [prepare(processor) for prepare in _FILTERS]
    return tuple([each for each in found if each is not None])
