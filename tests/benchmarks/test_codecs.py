"""The benchmark of the codecs measures turns that answer what they were asked."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from benchmarks.codecs import SHAPE, Row, measure, rows
from interlingua.protocols.grps.codec_grpc import read_message
from interlingua.protocols.grps.codec_json import parse_document, read_document
from interlingua.protocols.grps.json_quirks import REPLY

ROWS = rows()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_both_sides_answer_with_the_image(row: Row) -> None:
    answer: Any = row.grps()
    message = (
        read_message(answer)
        if "protobuf" in row.name
        else read_document(parse_document(answer, REPLY), REPLY)
    )
    (tensor,) = message.tensors
    image = np.random.default_rng(0).random(SHAPE, np.float32)
    assert tensor.shape == SHAPE
    assert (tensor.flat == image.ravel()).all()
    other: Any = row.oip()
    if "typed" in row.name:
        assert image.tobytes() in bytes(other)
    else:
        assert json.loads(b"".join(other[1]))["outputs"][0]["data"] == pytest.approx(image.ravel().tolist())


def test_a_row_is_measured() -> None:
    assert all(spent > 0 for spent in measure(ROWS[0], 3))
