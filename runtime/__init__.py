"""Everything that answers an IR request: local models on their backends, and upstream servers.

A ``Target`` is the one thing the router knows; whether a model runs here or on a remote server shows nowhere
else. What a wire looks like belongs to ``protocols``; who may ask for what, to ``translator``.
"""
