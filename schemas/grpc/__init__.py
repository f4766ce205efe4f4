"""The wire contract of gRPC's own reflection service.

``MESSAGES`` holds the message classes by full name, such as
``grpc.reflection.v1.ServerReflectionRequest``. Its answers belong to ``protocols.reflection``.
"""

from interlingua.schemas.protobuf import load_messages

MESSAGES = load_messages(__name__, "reflection.desc")
