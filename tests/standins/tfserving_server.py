"""A server of TensorFlow Serving's gRPC, with the messages and tensors of OpenVINO Model Server's client.

As ModelServer it answers in typed values, with the version that ran, and refuses a request without a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import grpc
import numpy as np
from ovmsclient.tfs_compat.grpc.tensors import make_ndarray
from ovmsclient.tfs_compat.protos.tensorflow.core.framework import types_pb2 as types
from ovmsclient.tfs_compat.protos.tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

VERSION = 3
"""The one version of the model."""

INPUTS, OUTPUTS = ("INPUT0", "INPUT1"), ("OUTPUT0", "OUTPUT1")
AVAILABLE = 30


def _checked(spec: Any, context: grpc.ServicerContext) -> None:
    if spec.name != "simple":
        context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: Latest({spec.name})")
    if spec.HasField("version") and spec.version.value != VERSION:
        context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: Specific(simple, {spec})")


def _shaped(shape: Any, sides: Sequence[int]) -> None:
    for side in sides:
        shape.dim.add(size=side)


class _Predictions(prediction_service_pb2_grpc.PredictionServiceServicer):
    """``simple``: the sum and the difference of two inputs."""

    def Predict(self, request: Any, context: grpc.ServicerContext) -> Any:
        _checked(request.model_spec, context)
        if sorted(request.inputs) != list(INPUTS):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "input size does not match signature")
        one, two = (make_ndarray(request.inputs[name]) for name in INPUTS)
        answer = predict_pb2.PredictResponse()
        answer.model_spec.name, answer.model_spec.version.value = "simple", VERSION
        answer.model_spec.signature_name = "serving_default"
        for name, array in zip(OUTPUTS, (one + two, one - two), strict=True):
            if request.output_filter and name not in request.output_filter:
                continue
            tensor = answer.outputs[name]
            tensor.dtype = types.DT_INT32
            _shaped(tensor.tensor_shape, array.shape)
            tensor.int_val.extend(array.astype(np.int32).ravel().tolist())
        return answer

    def GetModelMetadata(self, request: Any, context: grpc.ServicerContext) -> Any:
        _checked(request.model_spec, context)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        signature = signatures.signature_def["serving_default"]
        signature.method_name = "tensorflow/serving/predict"
        for side, names in ((signature.inputs, INPUTS), (signature.outputs, OUTPUTS)):
            for name in names:
                side[name].name, side[name].dtype = f"{name}:0", types.DT_INT32
                _shaped(side[name].tensor_shape, (-1, 16))
        answer = get_model_metadata_pb2.GetModelMetadataResponse()
        answer.model_spec.name, answer.model_spec.version.value = "simple", VERSION
        packed = answer.metadata["signature_def"]
        packed.type_url = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
        packed.value = signatures.SerializeToString()
        return answer


class _Models(model_service_pb2_grpc.ModelServiceServicer):
    def GetModelStatus(self, request: Any, context: grpc.ServicerContext) -> Any:
        if not request.HasField("model_spec"):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Missing ModelSpec")
        if request.model_spec.name != "simple":
            what = f"Could not find any versions of model {request.model_spec.name}"
            context.abort(grpc.StatusCode.NOT_FOUND, what)
        answer = get_model_status_pb2.GetModelStatusResponse()
        answer.model_version_status.add(version=VERSION, state=AVAILABLE).status.SetInParent()
        return answer


def start(running: ExitStack) -> str:
    """Serve until ``running`` ends; the address."""
    server = grpc.server(running.enter_context(ThreadPoolExecutor(4)))
    add: list[Callable[[Any, Any], None]] = [
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server,
        model_service_pb2_grpc.add_ModelServiceServicer_to_server,
    ]
    for register, service in zip(add, (_Predictions(), _Models()), strict=True):
        register(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    running.callback(lambda: server.stop(None).wait(20))
    return f"127.0.0.1:{port}"
