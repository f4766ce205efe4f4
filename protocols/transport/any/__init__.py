"""One port for HTTP, gRPC and bRPC, with and without TLS: the first bytes of a connection decide."""
