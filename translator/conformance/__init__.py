"""The conformance kit: tests whether any server conforms to its dialect.

A ``ServerUnderTest`` is a server with one of its models; a ``Check`` is a rule in one sentence, and code that
searches for a request that breaks it. ``kit`` runs checks, ``report`` writes the results; ``plugin`` and
``test_conformance`` run the same in pytest. A ``Wire`` (``wires``) describes a dialect on one transport;
everything else is about tensors and applies to all of them.

No code here depends on a particular server. Running needs Hypothesis, which the extra ``conformance``
installs."""
