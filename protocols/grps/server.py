"""The HTTP endpoints of each flavor: paths, methods and statuses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from interlingua.protocols.dialect import Action, HttpEndpoint, Opened
from interlingua.protocols.grps import outcome
from interlingua.protocols.grps.codec_json import parse_document
from interlingua.protocols.grps.flavors import Flavor
from interlingua.protocols.grps.json_quirks import QUIRKS
from interlingua.protocols.grps.message import GrpsMessage
from interlingua.protocols.grps.options import PredictOptions, query_of
from interlingua.protocols.grps.page import SCRIPT, page, series_json
from interlingua.protocols.grps.server_predict import Predict, json_answer, uncoded_json
from interlingua.protocols.json_document import LONG_BYTES, is_long
from interlingua.protocols.wire import HttpAnswer, HttpRequest
from interlingua.schemas import InferenceError, Metrics, Operation, malformed

Open = Callable[[HttpRequest], Opened[HttpAnswer]]

_ROOT = "/grps/v1"
_PREDICT = f"{_ROOT}/infer/predict"


def http_endpoints(flavor: Flavor, options: PredictOptions) -> tuple[HttpEndpoint, ...]:
    """The endpoints of a listener."""
    fail = partial(_fail, flavor)
    predict = Predict(flavor, options)
    own_path = ((options.path, ("GET", "POST")),) if options.path else ()
    return (
        *(
            endpoint
            for path, methods in ((_PREDICT, ("POST",)), *own_path)
            for endpoint in _endpoints(flavor, path, methods, predict.open, predict.fail, Operation.INFER)
        ),
        *(
            endpoint
            for path, (methods, operation, open_request) in _requests(flavor, options).items()
            for endpoint in _endpoints(flavor, f"{_ROOT}/{path}", methods, open_request, fail, operation)
        ),
        # these have the same methods in both flavors
        *(
            # of these only the root may be another dialect's too
            HttpEndpoint(
                method, path, open_request, fail, page=(method, path) == ("GET", "/"), operations=(operation,)
            )
            for path, (operation, open_request) in _pages(flavor).items()
            for method in ("GET", "HEAD")
        ),
    )


def _endpoints(
    flavor: Flavor, path: str, methods: tuple[str, ...], open_request: Open, fail: Any, operation: Operation
) -> tuple[HttpEndpoint, ...]:
    methods = (*methods, "HEAD") if "GET" in methods else methods
    places = [("*", path), ("*", f"{path}/")] if flavor.any_method else [(each, path) for each in methods]
    return tuple(
        HttpEndpoint(method, each, open_request, fail, operations=(operation,)) for method, each in places
    )


def _requests(flavor: Flavor, options: PredictOptions) -> dict[str, tuple[tuple[str, ...], Operation, Open]]:
    """Everything except inference, by path: the methods, the operation, and what opens a request. Bodies of
    probes are ignored."""
    both = ("GET", "POST")

    def action(operation: Operation, report: Callable[[Any], GrpsMessage]) -> Action[HttpAnswer]:
        return Action(operation, lambda opened, result: json_answer(flavor, report(result)))

    def offer(
        operation: Operation, report: Callable[[Any], GrpsMessage]
    ) -> tuple[tuple[str, ...], Operation, Open]:
        ready = action(operation, report)
        return both, operation, lambda request: Opened(ready)

    model = action(Operation.DEPLOYMENT, partial(outcome.model_metadata, flavor))
    return {
        "health/online": offer(Operation.SET_ONLINE, lambda result: outcome.DONE),
        "health/offline": offer(Operation.SET_OFFLINE, lambda result: outcome.DONE),
        "health/live": offer(Operation.LIVE, outcome.probed),
        "health/ready": offer(Operation.READY, outcome.probed),
        "metadata/server": offer(Operation.DEPLOYMENT, partial(outcome.server_metadata, flavor, options)),
        "metadata/model": (
            ("POST",),
            model.operation,
            lambda request: Opened(model, _model_name(flavor, request)),
        ),
    }


def _pages(flavor: Flavor) -> dict[str, tuple[Operation, Open]]:
    """The operation and what opens a request of the pages of browsers, by path."""
    shown: Action[HttpAnswer] = Action(Operation.METRICS, _encode_page)
    drawn: Action[HttpAnswer] = Action(Operation.METRICS, partial(_encode_series, flavor))
    script: Action[HttpAnswer] = Action(Operation.LIVE, _encode_script)
    scripts = (Operation.LIVE, lambda request: Opened(script))
    return {
        "/": (Operation.METRICS, lambda request: Opened(shown)),
        f"{_ROOT}/monitor/metrics": (Operation.METRICS, lambda request: Opened(shown)),
        f"{_ROOT}/monitor/series": (
            Operation.METRICS,
            lambda request: Opened(drawn, message=query_of(request).get("name", "")),
        ),
        # the page needs one script, the original two
        f"{_ROOT}/js/jquery_min": scripts,
        f"{_ROOT}/js/flot_min": scripts,
    }


def _model_name(flavor: Flavor, request: HttpRequest) -> str:
    """The name of the model in a request for metadata, of any content type."""
    body = uncoded_json(request)
    if len(body) > LONG_BYTES and is_long(body):
        raise malformed("a model is stated by its name, a string in str_data")
    document = parse_document(body, QUIRKS[flavor.name]) if body else {}
    name = document.get("str_data") if isinstance(document, dict) else document
    if name is None:
        raise outcome.StatusError(flavor.no_name)
    if not isinstance(document, dict) or not isinstance(name, str):
        raise malformed("a model is stated by its name, a string in str_data")
    if not name:
        raise outcome.no_metadata(flavor)
    return name


def _encode_page(opened: Opened[HttpAnswer], metrics: Metrics) -> HttpAnswer:
    return HttpAnswer(200, (("Content-Type", "text/html"),), [page(metrics)])


def _encode_series(flavor: Flavor, opened: Opened[HttpAnswer], metrics: Metrics) -> HttpAnswer:
    document = series_json(opened.message, metrics)
    if document is not None:
        return HttpAnswer(200, (("Content-Type", flavor.json_type),), [document])
    if flavor.mirrors:
        return HttpAnswer(200, (("Content-Type", "text/html; charset=utf-8"),), [b"key not found"])
    return HttpAnswer(200, (("Content-Type", flavor.json_type),))


def _encode_script(opened: Opened[HttpAnswer], result: Any) -> HttpAnswer:
    return HttpAnswer(200, (("Content-Type", "application/javascript"),), [SCRIPT])


def _fail(
    flavor: Flavor, request: HttpRequest, opened: Opened[HttpAnswer] | None, error: InferenceError
) -> HttpAnswer:
    if outcome.is_unparsable(opened, error):
        return flavor.unread(error.message)
    operation, model = (opened.action.operation, opened.model) if opened else (None, "")
    return json_answer(flavor, outcome.failed(flavor, error, operation, model))
