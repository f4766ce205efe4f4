"""The conformance kit: whether a server, ours or not, keeps to the dialect that it speaks.

Contract: a ``Subject`` is a server and a model of it; a ``Check`` is one sentence that must hold of it, and
the code that tries to break it with generated requests. ``kit`` runs checks, ``report`` writes what they
found; ``plugin`` and ``test_conformance`` do the same inside pytest. What a dialect looks like on a transport
is one ``Wire`` (``wires``); everything else is about tensors and holds for all of them.

Nothing here knows a server by name. Hypothesis is needed to run, as the extra ``conformance`` installs it.
"""
