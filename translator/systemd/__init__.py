"""Services of systemd: sockets that it opens, and what it is notified of. No library is needed."""
