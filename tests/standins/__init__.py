"""Servers for our upstream clients to talk to that import nothing of ours.

They are written with other projects' code (graphpipe's convert module, tritonclient's protobuf stubs)
or by hand from the specification, so that a codec cannot agree with its own mistakes. Each serves
``simple`` (sum and difference) and ``identity`` (what came goes back).
"""
