"""Copies of requests to another model, and comparisons of its answers with those that callers got.

``mirror`` decides what to copy, ``sequences`` keeps sequences whole and in order. ``judge`` sends the copy
and compares; for upstream models this runs in a separate ``process``. ``report`` counts the results,
``metrics`` exports them, ``pairs`` records both answers for replay. ``translator.diff`` does the comparison
itself."""

from interlingua.translator.mirror.build import build
from interlingua.translator.mirror.metrics import families
from interlingua.translator.mirror.mirror import Mirror
from interlingua.translator.mirror.report import MirrorReport, OutputReport, merge, reports, without_process

__all__ = [
    "Mirror",
    "MirrorReport",
    "OutputReport",
    "build",
    "families",
    "merge",
    "reports",
    "without_process",
]
