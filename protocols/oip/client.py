"""The calls to an upstream: one table for HTTP, one for gRPC.

Inference over HTTP belongs to ``client_http``, the forms of calls and replies to ``codec_http``,
``metadata_json`` and ``codec_grpc``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.json_document import parse_json
from interlingua.protocols.oip import mlserver, passthrough_http
from interlingua.protocols.oip.client_http import JSON_INFER_CALL, http_answer, model_path
from interlingua.protocols.oip.generate_call import GENERATE_CALL
from interlingua.protocols.oip.grpc_control import CONTROL_CALLS, KSERVE_CALLS
from interlingua.protocols.oip.grpc_probes import CALLS
from interlingua.protocols.oip.index_call import GRPC_INDEX_CALL, encode_http, read_document
from interlingua.protocols.oip.metadata_json import (
    parse_object,
    read_error,
    read_model_config,
    read_model_metadata,
    read_server_metadata,
)
from interlingua.protocols.oip.passthrough import INFER_CALL
from interlingua.protocols.oip.passthrough_stream import STREAM_CALL
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcRequest, HttpCall, HttpReply
from interlingua.schemas import (
    ModelRef,
    Operation,
    Readiness,
    Signature,
)

T = TypeVar("T")

HttpUpstreamCall = UpstreamCall[HttpCall, HttpReply]


def _get(path: str) -> Callable[[Any, Signature | None], tuple[HttpCall, None]]:
    return lambda argument, signature: (HttpCall("GET", path), None)


def _get_of_model(model: ModelRef, signature: Signature | None, suffix: str = "") -> tuple[HttpCall, str]:
    return HttpCall("GET", f"{model_path(model.name, model.version)}{suffix}"), model.version


def _decode_readiness(form: str | None, reply: HttpReply) -> Readiness:
    """All servers agree on the status alone; the body may be empty or plain text."""
    if reply.status == 200:
        return Readiness(True)
    return Readiness(False, read_error(reply.status, reply.body))


def _reads(
    read: Callable[[Any], T], parse: Callable[[Buffer], Any] = parse_object
) -> Callable[[str | None, HttpReply], T]:
    """The decoder of a reply whose body, parsed by ``parse``, is for ``read``. Its form is the version."""
    return lambda form, reply: http_answer(reply, lambda: read(parse(reply.body)), version=form or "")


def _control(model: ModelRef, signature: Signature | None, verb: str) -> tuple[HttpCall, None]:
    path = f"/v2/repository{model_path(model.name, '').removeprefix('/v2')}/{verb}"
    return HttpCall("POST", path, parts=[b"{}"]), None


def _decode_done(form: None, reply: HttpReply) -> None:
    """Some servers answer with an empty body, others with what was done."""
    http_answer(reply, lambda: None)


_PROBES: Mapping[Operation, HttpUpstreamCall] = {
    Operation.LIVE: UpstreamCall(_get("/v2/health/live"), _decode_readiness),
    Operation.READY: UpstreamCall(_get("/v2/health/ready"), _decode_readiness),
    Operation.MODEL_READY: UpstreamCall(partial(_get_of_model, suffix="/ready"), _decode_readiness),
    Operation.SERVER_METADATA: UpstreamCall(_get("/v2"), _reads(read_server_metadata)),
    Operation.MODEL_METADATA: UpstreamCall(_get_of_model, _reads(read_model_metadata)),
    Operation.MODEL_CONFIG: UpstreamCall(partial(_get_of_model, suffix="/config"), _reads(read_model_config)),
    Operation.REPOSITORY_INDEX: UpstreamCall(encode_http, _reads(read_document, parse_json)),
    Operation.MODEL_LOAD: UpstreamCall(partial(_control, verb="load"), _decode_done),
    Operation.MODEL_UNLOAD: UpstreamCall(partial(_control, verb="unload"), _decode_done),
}

HTTP_CALLS: Mapping[Operation, HttpUpstreamCall] = {
    **_PROBES,
    Operation.INFER: passthrough_http.INFER_CALL,
    Operation.INFER_STREAM: GENERATE_CALL,
}

HTTP_JSON_CALLS: Mapping[Operation, HttpUpstreamCall] = {
    **_PROBES,
    Operation.INFER: JSON_INFER_CALL,
}
"""For servers without the binary tensor data extension."""

GRPC_CALLS: Mapping[Operation, UpstreamCall[GrpcRequest, GrpcAnswer]] = {
    **CALLS,
    **CONTROL_CALLS,
    Operation.REPOSITORY_INDEX: GRPC_INDEX_CALL,
    Operation.INFER: INFER_CALL,
    Operation.INFER_STREAM: STREAM_CALL,
}

GRPC_KSERVE_CALLS: Mapping[Operation, UpstreamCall[GrpcRequest, GrpcAnswer]] = {**GRPC_CALLS, **KSERVE_CALLS}
"""For KServe, whose requests to load and unload name the model in another field."""

GRPC_MLSERVER_CALLS: Mapping[Operation, UpstreamCall[GrpcRequest, GrpcAnswer]] = {
    **GRPC_CALLS,
    Operation.INFER_STREAM: mlserver.STREAM_CALL,
}
"""For MLServer, which does not wrap the answers of a stream."""
