"""Compares a configuration with the servers and files that it names.

``upstreams`` queries every server, ``conversation`` detects its dialect, ``signatures`` compares the declared
signature of a model with the server's; nothing is loaded or run there. ``models`` checks local models."""
