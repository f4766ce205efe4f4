"""The wire contract of the Open Inference Protocol over gRPC, and gRPC's own health contract.

``MESSAGES`` and ``HEALTH_MESSAGES`` hold the message classes by full name, such as
``inference.ModelInferRequest``. What a message means belongs to ``protocols.oip``.
"""

from interlingua.schemas.protobuf import load_messages

MESSAGES = load_messages(__name__, "grpc_service.desc")
HEALTH_MESSAGES = load_messages(__name__, "health.desc")
