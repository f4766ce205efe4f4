"""Shared memory between two processes of one server: control records in rings, large tensors in arenas."""
