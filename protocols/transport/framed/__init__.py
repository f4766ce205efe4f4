"""Messages with their size before them, as a listener and as a client."""
