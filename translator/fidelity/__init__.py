"""The fidelity of each path from a caller to a target: what is exact, widened, dropped or refused.

Computed from the capabilities that dialects and backends declare (``protocols.dialect.Capability``); tests
verify it with real daemons. ``parties`` lists callers and targets, ``tensors`` and ``features`` judge one
item on one path, ``path`` all items, and ``page`` and ``words`` write the results."""
