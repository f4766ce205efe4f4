"""Puts the recordings of an earlier start aside, where several processes write them together."""

from __future__ import annotations

from pathlib import Path

from interlingua.translator.config.options import Config
from interlingua.translator.recording import shared_file


def begin_recordings(config: Config, before: Config | None = None) -> None:
    """Rotate those of the tap and of mirrors, before any process writes; those that ``before`` has too go on.
    Raises ``OSError``."""
    if config.tap is not None and (before is None or before.tap != config.tap):
        shared_file.begin(Path(config.tap.path), config.tap.max_files)
    known = () if before is None else [each.mirror.keep for each in before.routes if each.mirror is not None]
    for route in config.routes:
        keep = None if route.mirror is None else route.mirror.keep
        if keep is not None and keep not in known:
            shared_file.begin(Path(keep.path))
