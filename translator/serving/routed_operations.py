"""Operations besides inference on a model that is the name of a route: one of its models performs them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from interlingua.schemas import InferenceError
from interlingua.translator.serving.operations import Offer, OperationRequest
from interlingua.translator.serving.routing.route import Route


async def by_route(offer: Offer, request: OperationRequest, route: Route) -> Any:
    """Perform the operation for the first served model of ``route``. If that is unavailable, the next one
    answers if any model can. Raises ``InferenceError``."""
    models = request.service.router.models
    names = [name for name in route.models if name in models] or [route.models[0]]
    failures: list[InferenceError] = []
    for name in names if offer.any_model else names[:1]:
        target = models.get(name)
        view = None if target is None else route.view(target, request.model)
        try:
            return await offer.perform(replace(request, name=name, target=view, route=route))
        except InferenceError as error:
            if not (error.retryable or error.model_not_found):
                raise
            failures.append(error)
    raise failures[0]
