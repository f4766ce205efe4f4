"""The server's side of HTTP/2, without a socket."""
