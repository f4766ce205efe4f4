"""How requests wait for a model and meet in batches.

``policy`` holds what a configuration says of it, ``admission`` the limits of what may be inside, ``queue``
the requests that wait, ``forming`` which of them run next and when, ``batch`` how they become one set of
tensors and again single answers, ``order`` in which order answers leave, ``runners`` what runs a batch, and
``scheduler`` brings them together. Sequences have the same parts of their own: ``sequence_policy``,
``sequence_table`` with the slots of the instances and the backlog, ``sequence_forming``,
``sequence_controls`` and ``sequence_state`` with what a model is given beside its inputs, and
``sequence_scheduler``. All but a runner's threads lives on the event loop, so nothing locks.
"""
