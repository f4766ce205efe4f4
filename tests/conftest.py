"""What holds for every test."""

from __future__ import annotations

import os

from hypothesis import settings

# a property says what is true, not how soon: a busy machine must not make it fail; `make fuzz` looks longer
settings.register_profile("untimed", deadline=None, max_examples=int(os.environ.get("FUZZ_EXAMPLES", "100")))
settings.load_profile("untimed")
