"""The manifest of TensorFlow Serving."""

from __future__ import annotations

from interlingua.protocols.manifest import Manifest

MANIFEST = Manifest(
    title="TensorFlow Serving",
    default_flavor="tensorflow",
    examples={
        "http": "curl -s http://{url}/v1/models/{model}/metadata",
        "http+unix": "curl -s --unix-socket {path} http://localhost/v1/models/{model}/metadata",
        "grpc": (
            '{python} -c "import grpc; from interlingua.schemas.tfserving import MESSAGES as M; '
            "call = grpc.insecure_channel('{url}').unary_unary("
            "'/tensorflow.serving.ModelService/GetModelStatus'); "
            "request = M['tensorflow.serving.GetModelStatusRequest'](model_spec=dict(name='{model}'))"
            ".SerializeToString(); "
            "print(M['tensorflow.serving.GetModelStatusResponse'].FromString(call(request)))\""
        ),
    },
)
