"""Reload of the configuration of a running server: built first, then swapped in, or not at all."""
