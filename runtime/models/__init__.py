"""Models that run here: a model, its versions, and what holds for every backend.

How versions come from files belongs to ``runtime.repository.files``, when they run to ``runtime.scheduling``.
"""
