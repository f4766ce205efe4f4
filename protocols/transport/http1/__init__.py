"""HTTP/1 without sockets: headers, bodies and requests in, answers out."""
