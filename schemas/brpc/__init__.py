"""The wire contract of bRPC's own protocol, baidu_std: the description that precedes every message.

``MESSAGES`` holds the message classes by full name, such as ``brpc.policy.RpcMeta``. Frames are cut and
written in ``protocols.transport.brpc.frame``.
"""

from interlingua.schemas.protobuf import load_messages

MESSAGES = load_messages(__name__, "rpc_meta.desc")
