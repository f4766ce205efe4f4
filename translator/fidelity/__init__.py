"""What becomes of a request and its answer on the way from any caller to any target: exact, widened, refused.

Everything here is computed from what dialects and backends declare (``protocols.dialect.Capability``), so a
new one is in the matrix as soon as it is registered. ``parties`` lists who calls and who answers, ``tensors``
and ``features`` judge one thing on one path, ``path`` all of them, and ``page`` and ``words`` write it down.
Nothing here is asked while a request is on its way: whether the codecs keep to it is for the tests, which
send all of it through real daemons.
"""
