"""The tap of a configuration."""

from __future__ import annotations

from pathlib import Path

from interlingua.translator.config.options import Config
from interlingua.translator.recording.redaction import Redaction
from interlingua.translator.recording.shared_file import writer
from interlingua.translator.recording.tap import Tap


def build(config: Config) -> Tap | None:
    """Raises ``OSError`` if its file cannot be opened."""
    options = config.tap
    if options is None:
        return None
    headers = tuple(header.lower() for header in options.headers)
    return Tap(
        writer(Path(options.path), options.max_bytes, options.max_files, config.server.shares_files),
        options.models,
        options.percent,
        Redaction(options.redact.tensors, options.redact.parameters, headers),
        options.max_queue_bytes,
    )
