"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# a property says what is true, not how soon: a busy machine must not make it fail
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
