"""Sequences that several daemons share: each runs at the daemon that owns it.

``rendezvous`` says which daemon that is, ``owners`` when that is certain; ``peers`` sends requests there, as
the ``model`` that runs there.
"""
