"""Hand-over: a new process takes the listening sockets of a running daemon over, which then drains and exits.

Closing one of several sockets with SO_REUSEPORT resets the connections in its queue. Passed sockets
(``SCM_RIGHTS``, unix(7)) have one queue: a connection that the old process has not accepted waits for the new
one.
"""
