"""The manifest of OIP."""

from __future__ import annotations

from interlingua.protocols.manifest import Manifest, grpc_example

MANIFEST = Manifest(
    by_default=True,
    title="OIP v2",
    default_flavor="triton",
    extensions=(
        "classification",
        "sequence",
        "model_repository",
        "model_repository(unload_dependents)",
        "schedule_policy",
        "model_configuration",
        "system_shared_memory",
        "binary_tensor_data",
        "parameters",
        "statistics",
        "logging",
    ),
    headers=frozenset({"inference-header-content-length"}),
    examples={
        "http": "curl -s http://{url}/v2/models/{model}",
        "http+unix": "curl -s --unix-socket {path} http://localhost/v2/models/{model}",
        "grpc": grpc_example(
            "oip",
            "inference.GRPCInferenceService/ModelMetadata",
            "inference.ModelMetadataRequest",
            "inference.ModelMetadataResponse",
            "name",
        ),
    },
)
