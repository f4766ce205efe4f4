"""Copies of requests to another model, whose answers are compared with those that callers got.

``mirror`` decides what is copied, ``sequences`` keeps the requests of one together. ``judge`` asks the other
model and compares; for models elsewhere this happens in a ``process`` of its own. ``report`` counts what came
out, ``metrics`` and ``pairs`` pass it on: as numbers, and as recordings to be replayed. How answers are
compared belongs to ``translator.diff``.
"""

from interlingua.translator.mirror.build import build
from interlingua.translator.mirror.metrics import families
from interlingua.translator.mirror.mirror import Mirror
from interlingua.translator.mirror.report import MirrorReport, OutputReport, reports

__all__ = ["Mirror", "MirrorReport", "OutputReport", "build", "families", "reports"]
