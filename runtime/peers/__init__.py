"""Sequences that several daemons share: each runs at the daemon that owns it.

``owners`` says which daemon that is, and when that is certain; ``peers`` sends requests there, as the
``model`` that runs there.
"""
