"""Targets for the files that operators write, or keep: config.pbtxt, the configuration, recordings."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.model_config.message import config_message
from interlingua.runtime.model_config.pbtxt import CONFIG_FILENAME, override_config, read_config
from interlingua.schemas import (
    Datatype,
    InferRequest,
    InferResponse,
    RequestedOutput,
    Sequence,
    Signature,
    Tensor,
)
from interlingua.translator.config.document import ConfigError
from interlingua.translator.config.loader import parse
from interlingua.translator.recording.layout import DamagedError, pack, unpack
from interlingua.translator.recording.record import Record, RecordedAnswer
from tests.fuzz.target import Target

ROOT = Path(__file__).parents[2]


@functools.cache
def _folder() -> Path:
    """A model folder that lasts as long as the process."""
    made = tempfile.TemporaryDirectory(prefix="interlingua-fuzz-")
    _folders.append(made)
    return Path(made.name)


_folders: list[tempfile.TemporaryDirectory[str]] = []


def _model_config(data: bytes) -> None:
    folder = _folder()
    (folder / CONFIG_FILENAME).write_bytes(data)
    try:
        config = read_config(folder)
        override_config(folder, config_message(config, Signature((), ())))
    except LoadError:
        pass


def _model_config_seeds() -> Iterator[bytes]:
    for folder in ("examples", "tests/golden/oip"):
        for path in sorted((ROOT / folder).rglob(CONFIG_FILENAME)):
            yield path.read_bytes()


def _configuration(data: bytes) -> None:
    with contextlib.suppress(ConfigError, UnicodeDecodeError):
        parse(data.decode())


def _configuration_seeds() -> Iterator[bytes]:
    text = (ROOT / "config.example.yaml").read_text()
    sections = [part.encode() for part in text.split("\n\n")]
    yield from sections
    page = (ROOT / "docs" / "configuration.md").read_text()
    for block in page.split("```yaml\n")[1:]:
        yield block.partition("```")[0].encode()


def _record(data: bytes) -> None:
    """A record of a tap: its header after the header's size in two bytes, then the tensors."""
    size = int.from_bytes(data[:2], "big")
    with contextlib.suppress(DamagedError):
        unpack(data[2 : 2 + size], memoryview(data[2 + size :]))


def _record_seeds() -> Iterator[bytes]:
    data = Tensor("INPUT0", Datatype.INT32, (2,), memoryview(bytes(8)))
    request = InferRequest(
        "model", (data,), (RequestedOutput("INPUT0"),), "1", "id", {"a": 1}, Sequence(7, True)
    )
    answer = RecordedAnswer("model", (InferResponse("model", (data,), "1"),))
    header, parts = pack(Record(1, request, "oip", "127.0.0.1:8000", answer))
    yield len(header).to_bytes(2, "big") + header + b"".join(map(bytes, parts))


TARGETS = (
    Target("config-pbtxt", _model_config, _model_config_seeds, 1 << 13),
    Target("configuration", _configuration, _configuration_seeds, 1 << 12),
    Target("recording", _record, _record_seeds),
)
