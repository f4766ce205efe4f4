"""Connections that one process accepts and others serve."""
