"""baidu_std, bRPC's own protocol, as a listener and as a client."""
