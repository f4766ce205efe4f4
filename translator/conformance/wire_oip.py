"""What the Open Inference Protocol has in common on both of its transports: the texts of ids."""

from __future__ import annotations

import string

from hypothesis import strategies as st

PLAIN_IDS = st.text(string.ascii_letters + string.digits + "-_.", min_size=1, max_size=12)
"""Ids as clients make them."""

ANY_IDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=12)
"""Any text without control characters."""
