"""HTTP/2 without a socket: the server's and the client's end of a connection."""
