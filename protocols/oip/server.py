"""The HTTP endpoints and gRPC methods of the dialect: paths, versions and statuses."""

from __future__ import annotations

from functools import partial

from interlingua.protocols.dialect import Action, GrpcEndpoint, HttpEndpoint, Opened
from interlingua.protocols.oip.codec_grpc import METHOD
from interlingua.protocols.oip.codec_http import (
    JSON_HEADERS,
    OipHttpReplyForm,
    decode_request,
    encode_response,
)
from interlingua.protocols.oip.generate import generate_endpoints
from interlingua.protocols.oip.grpc_control import CONTROL_OPENERS
from interlingua.protocols.oip.grpc_messages import fail
from interlingua.protocols.oip.grpc_probes import HEALTH_WATCH_ENDPOINT, OPENERS
from interlingua.protocols.oip.http_control import CONTROL_ENDPOINTS
from interlingua.protocols.oip.http_endpoint import http_fail, json_answer, json_encoder, of_model, of_server
from interlingua.protocols.oip.metadata_json import write_model_metadata, write_server_metadata
from interlingua.protocols.oip.passthrough import open_infer
from interlingua.protocols.oip.passthrough_http import PASSTHROUGH, prefix
from interlingua.protocols.oip.passthrough_stream import STREAM_ENDPOINT
from interlingua.protocols.wire import HttpAnswer, HttpRequest
from interlingua.schemas import (
    InferRequest,
    InferResponse,
    Operation,
    Readiness,
    Signature,
)


def http_unmatched(request: HttpRequest, allowed: tuple[str, ...]) -> HttpAnswer:
    """The answer to an unknown path or method."""
    if allowed:
        headers = (*JSON_HEADERS, ("Allow", ", ".join(sorted(allowed))))
        return json_answer(405, {"error": "Method Not Allowed"}, headers)
    return json_answer(404, {"error": "Not Found"})


def _decode_infer(opened: Opened[HttpAnswer], signature: Signature) -> tuple[InferRequest, OipHttpReplyForm]:
    return decode_request(opened.message, opened.model, opened.version, signature)


def _encode_infer(form: OipHttpReplyForm, response: InferResponse, nonfinite: bool) -> HttpAnswer:
    headers, parts = encode_response(form, response, nonfinite)
    return HttpAnswer(200, headers, parts)


def _encode_live(opened: Opened[HttpAnswer], state: Readiness) -> HttpAnswer:
    return json_answer(200 if state.ready else 400, {"live": state.ready})


def _encode_ready(opened: Opened[HttpAnswer], state: Readiness) -> HttpAnswer:
    if state.ready:
        return json_answer(200, {"ready": True})
    return json_answer(400, {"ready": False, "error": state.reason or "the server is not ready"})


def _encode_model_ready(opened: Opened[HttpAnswer], state: Readiness) -> HttpAnswer:
    if state.ready:
        return json_answer(200, {"name": opened.model, "ready": True})
    return json_answer(400, {"error": state.reason or "Model version not ready"})


_LIVE = of_server(Action(Operation.LIVE, _encode_live))
_READY = of_server(Action(Operation.READY, _encode_ready))
_METADATA = of_server(Action(Operation.SERVER_METADATA, json_encoder(write_server_metadata)))
_MODEL_READY = of_model(Action(Operation.MODEL_READY, _encode_model_ready))
_MODEL_METADATA = of_model(Action(Operation.MODEL_METADATA, json_encoder(write_model_metadata)))


def http_endpoints(nonfinite: bool = False) -> tuple[HttpEndpoint, ...]:
    """The HTTP endpoints; ``nonfinite`` allows the tokens of NaN and infinity, which strict JSON lacks."""
    encode_infer = partial(_encode_infer, nonfinite=nonfinite)
    operation, infer = of_model(Action(Operation.INFER, encode_infer, _decode_infer, passthrough=PASSTHROUGH))
    return (
        *(
            HttpEndpoint(method, path, open_request, http_fail, timed=True, operations=(each,))
            for method, path, (each, open_request) in (
                ("GET", "/v2", _METADATA),
                ("GET", "/v2/health/live", _LIVE),
                ("GET", "/v2/health/ready", _READY),
                ("GET", "/v2/models/{model}", _MODEL_METADATA),
                ("GET", "/v2/models/{model}/versions/{version}", _MODEL_METADATA),
                ("GET", "/v2/models/{model}/ready", _MODEL_READY),
                ("GET", "/v2/models/{model}/versions/{version}/ready", _MODEL_READY),
                *CONTROL_ENDPOINTS,
            )
        ),
        *(
            HttpEndpoint(
                "POST",
                f"/v2/models/{path}/infer",
                infer,
                http_fail,
                timed=True,
                prefix=prefix,
                operations=(operation,),
            )
            for path in ("{model}", "{model}/versions/{version}")
        ),
        *generate_endpoints(nonfinite),
    )


GRPC_ENDPOINTS: tuple[GrpcEndpoint, ...] = (
    *(
        GrpcEndpoint(method, open_message, fail, operations=(operation,))
        for method, operation, open_message in (
            (METHOD, Operation.INFER, open_infer),
            *OPENERS,
            *CONTROL_OPENERS,
        )
    ),
    STREAM_ENDPOINT,
    HEALTH_WATCH_ENDPOINT,
)
