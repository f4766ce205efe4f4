"""The manifest of the TensorRT Inference Server, version 1."""

from __future__ import annotations

from interlingua.protocols.manifest import Manifest, grpc_example

MANIFEST = Manifest(
    by_default=True,
    title="TRTIS v1",
    headers=frozenset({"nv-inferrequest", "nv-inferresponse", "nv-status"}),
    examples={
        "http": "curl -s http://{url}/api/status/{model}",
        "http+unix": "curl -s --unix-socket {path} http://localhost/api/status/{model}",
        "grpc": grpc_example(
            "trtis",
            "nvidia.inferenceserver.GRPCService/Status",
            "nvidia.inferenceserver.StatusRequest",
            "nvidia.inferenceserver.StatusResponse",
            "model_name",
        ),
    },
)
