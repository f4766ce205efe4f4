"""The table of fuzz targets, by name."""

from __future__ import annotations

from collections.abc import Mapping

from tests.fuzz import codecs, files, framings, http2
from tests.fuzz.target import Target

TARGETS: Mapping[str, Target] = {
    target.name: target for module in (codecs, framings, http2, files) for target in module.TARGETS
}
