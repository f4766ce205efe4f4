"""Where sockets are opened: servers that call a handler, clients that send for an upstream.

Each speaks the plain values of ``protocols.wire``. Nothing here knows a dialect, a model or a tensor.
"""
