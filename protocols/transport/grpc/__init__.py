"""gRPC, as a listener on HTTP/2 of our own or on grpcio, and as a client."""
