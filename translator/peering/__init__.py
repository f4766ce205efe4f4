"""The daemons that share sequences with this one: built from the configuration, and their metrics."""
