"""The wire contract of the TensorRT Inference Server's version 1: what its gRPC service speaks, and what
HTTP carries in headers and bodies.

``MESSAGES`` holds the message classes by full name, such as ``nvidia.inferenceserver.InferRequestHeader``.
It is the contract of release 1.15, which includes every earlier 1.x except the shapes of
``SharedMemoryControlRequest`` before 1.8. What a message means belongs to ``protocols.trtis``.
"""

from interlingua.schemas.protobuf import load_messages

MESSAGES = load_messages(__name__, "grpc_service.desc")
