"""Queues, batches and sequences.

``policy`` holds the configuration, ``admission`` the limits, ``queue`` the waiting requests, ``forming``
chooses the next batch, ``batch`` joins requests and splits answers, ``order`` keeps the order of answers,
``runners`` run a batch, and ``scheduler`` connects them. Sequences have the same parts: ``sequence_policy``,
``sequence_table`` (slots of the instances and the backlog), ``sequence_forming``, ``sequence_controls`` and
``sequence_state`` (hidden inputs), and ``sequence_scheduler``. Everything but a runner's threads is on the
event loop, so there are no locks.
"""
