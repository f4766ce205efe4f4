"""Puts the recordings of an earlier start aside, where several processes write them together."""

from __future__ import annotations

from pathlib import Path

from interlingua.translator.config.options import Config
from interlingua.translator.recording import shared_file


def begin_recordings(config: Config) -> None:
    """Rotate those of the tap and of mirrors, before any process writes. Raises ``OSError``."""
    if config.tap is not None:
        shared_file.begin(Path(config.tap.path), config.tap.max_files)
    for route in config.routes:
        if route.mirror is not None and route.mirror.keep is not None:
            shared_file.begin(Path(route.mirror.keep.path))
