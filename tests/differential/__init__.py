"""Requests that repeat others, answered by plans and without: callers, upstreams and counts see no difference.

``scenarios`` and ``upstream_scenarios`` are the table. Each of its rows runs for every binding of a caller, to a
local model and to upstreams, with ``server.plans`` and without; both outcomes equal the recorded one.
"""
