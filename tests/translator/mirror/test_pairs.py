"""What of pairs is written down, and what is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from interlingua.schemas import InferResponse, RequestedOutput
from interlingua.translator.config.mirror import KeepOptions
from interlingua.translator.mirror.pairs import Pairs
from interlingua.translator.recording.files import RecordingReader
from interlingua.translator.recording.record import ANSWER, MIRRORED, QUESTION, Record, RecordedAnswer
from interlingua.translator.recording.redaction import Redaction
from tests.translator.mirror.mirrored import answered, request, tensor


def test_what_is_redacted_is_in_no_part_of_a_pair(tmp_path: Path) -> None:
    secret = 1234.5
    asked = request(
        secret,
        parameters={"api_key": "s3cret"},
        outputs=(RequestedOutput("out", parameters={"api_key": "s3cret"}),),
    )
    asked.context.headers = {"authorization": "s3cret"}
    answer = InferResponse(
        "other", (tensor(secret), tensor(1.0, name="open")), parameters={"api_key": "s3cret"}
    )
    record = replace(Record.of(answered(asked, tensor(secret))), mirrored=RecordedAnswer("other", (answer,)))
    options = KeepOptions(path=str(tmp_path / "pairs"))
    pairs = Pairs(options, Redaction(tensors=("in", "out"), parameters=("api_*",)))
    assert pairs.takes(False, record.nbytes)
    assert pairs.write(record)
    pairs.close()
    written = (tmp_path / "pairs").read_bytes()
    assert b"s3cret" not in written
    assert tensor(secret).view.tobytes() not in written
    with RecordingReader(tmp_path / "pairs") as reader:
        (found,) = reader
    assert set(found.redacted) == {(QUESTION, 0, 0), (ANSWER, 0, 0), (MIRRORED, 0, 0)}
    assert found.mirrored is not None
    assert found.mirrored.responses[0].outputs[1].numpy().tolist() == [1.0]
    assert record.request.parameters == {"api_key": "s3cret"}, "others look at it too"
