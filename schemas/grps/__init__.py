"""The wire contract of grps 1.1: one message, carried by a gRPC service and by a bRPC one.

``MESSAGES`` holds the message classes by full name, such as ``grps.protos.v1.GrpsMessage``. What a
message means belongs to ``protocols.grps``.
"""

from interlingua.schemas.protobuf import load_messages

MESSAGES = load_messages(__name__, "grps.desc")
