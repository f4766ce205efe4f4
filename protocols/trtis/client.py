"""The calls to an upstream: one table for HTTP and gRPC, whose modules have the same names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.trtis import client_grpc, client_http, passthrough_http
from interlingua.protocols.trtis.client_status import model_metadata, model_readiness, server_metadata
from interlingua.schemas import ErrorCode, InferenceError, Operation, Readiness

Calls = Mapping[Operation, UpstreamCall[Any, Any]]


def _calls(over: Any) -> Calls:
    return {
        Operation.INFER: over.INFER_CALL,
        Operation.LIVE: over.health_call("live"),
        Operation.READY: over.health_call("ready"),
        Operation.SERVER_METADATA: over.status_call(server_metadata),
        Operation.MODEL_METADATA: over.status_call(model_metadata),
        Operation.MODEL_READY: _tolerant(over.status_call(model_readiness)),
        Operation.REPOSITORY_INDEX: over.INDEX_CALL,
        Operation.MODEL_LOAD: over.control_call("load"),
        Operation.MODEL_UNLOAD: over.control_call("unload"),
    }


def _tolerant(call: UpstreamCall[Any, Any]) -> UpstreamCall[Any, Any]:
    """``call``, where an unknown model is not ready."""

    def decode(form: Any, reply: Any) -> Any:
        try:
            return call.decode(form, reply)
        except InferenceError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            return Readiness(False, error.message)

    return UpstreamCall(call.encode, decode)


HTTP_CALLS = {**_calls(client_http), Operation.INFER: passthrough_http.INFER_CALL}
GRPC_CALLS = _calls(client_grpc)
