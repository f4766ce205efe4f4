"""What the codecs of grps cost beside those of OIP, in this process: ``python -m benchmarks.codecs``.

Each row decodes a request of 150,528 floats (an image of 224 by 224 by 3) and encodes an answer with the same
tensor, in turns with the form of OIP that carries as much per element. Times are CPU milliseconds, the
fastest of the rounds; the ratio is the result.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from interlingua.protocols.grps.codec import decode_request, encode_response
from interlingua.protocols.grps.codec_grpc import read_message, write_message
from interlingua.protocols.grps.codec_json import parse_document, read_document
from interlingua.protocols.grps.json_quirks import QUIRKS
from interlingua.protocols.grps.json_writer import write_message as write_json
from interlingua.protocols.grps.message import GenericTensor, GrpsMessage, Kind
from interlingua.protocols.oip import codec_grpc, codec_http
from interlingua.protocols.wire import GrpcRequest, HttpRequest
from interlingua.schemas import Datatype, InferResponse, Signature, TensorSpec
from interlingua.schemas.oip import MESSAGES

SHAPE = (224, 224, 3)
ROUNDS = 25

_SPECS = (TensorSpec("x", Datatype.FP32, (-1, -1, -1)),)
_SIGNATURE = Signature(_SPECS, _SPECS)


@dataclass(frozen=True)
class Row:
    """A case of grps, the case of OIP that it is held against, and the ratio that it is to stay under."""

    name: str
    grps: Callable[[], object]
    oip: Callable[[], object]
    target: float


def rows() -> list[Row]:
    """Every comparison, its messages ready."""
    image = np.random.default_rng(0).random(SHAPE, np.float32)
    lists = json.dumps(image.tolist())
    typed, flat, nested = _oip_typed(image), _oip_json(json.dumps(image.ravel().tolist())), _oip_json(lists)
    return [
        Row("gtensors, protobuf / OIP typed contents", _protobuf(image), typed, 2.0),
        *(
            Row(f"{name}, JSON, {flavor} / OIP JSON", build(flavor), oip, 1.5)
            for flavor in ("py", "cpp")
            for name, build, oip in (
                ("gtensors", lambda flavor: _gtensors_json(image, flavor), flat),
                ("ndarray in, gtensors out", lambda flavor: _ndarray(lists, flavor, False), nested),
                ("ndarray", lambda flavor: _ndarray(lists, flavor, True), nested),
            )
        ),
    ]


def measure(row: Row, rounds: int) -> tuple[float, float]:
    """The fastest round of either, in CPU milliseconds, taken in turns."""
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for index, call in enumerate((row.grps, row.oip)):
            before = time.process_time_ns()
            call()
            best[index] = min(best[index], (time.process_time_ns() - before) / 1e6)
    return best[0], best[1]


def _message(image: Any) -> GrpsMessage:
    tensor = GenericTensor("x", 7, image.shape, image.ravel())
    return GrpsMessage(Kind.GTENSORS, tensors=(tensor,))


def _protobuf(image: Any) -> Callable[[], object]:
    data = write_message(_message(image))

    def turn() -> bytes:
        request, form = decode_request(read_message(data), _SIGNATURE)
        return write_message(encode_response(form, InferResponse("m", request.inputs)))

    return turn


def _gtensors_json(image: Any, flavor: str) -> Callable[[], object]:
    return _json(write_json(_message(image), QUIRKS["compact"]), flavor, False)


def _ndarray(lists: str, flavor: str, back: bool) -> Callable[[], object]:
    return _json(f'{{"ndarray": {lists}}}'.encode(), flavor, back)


def _json(body: bytes, flavor: str, return_ndarray: bool) -> Callable[[], object]:
    quirks = QUIRKS[flavor]

    def turn() -> bytes:
        message = read_document(parse_document(body, quirks), quirks)
        request, form = decode_request(message, _SIGNATURE, return_ndarray=return_ndarray)
        return write_json(encode_response(form, InferResponse("m", request.inputs)), quirks)

    return turn


def _oip_typed(image: Any) -> Callable[[], object]:
    message: Any = MESSAGES["inference.ModelInferRequest"](model_name="m")
    tensor = message.inputs.add(name="x", datatype="FP32", shape=image.shape)
    tensor.contents.fp32_contents.extend(image.ravel().tolist())
    data = message.SerializeToString()

    def turn() -> object:
        opened = codec_grpc.open_infer(GrpcRequest(codec_grpc.METHOD, data))
        request, form = codec_grpc.decode_infer(opened, _SIGNATURE)
        return codec_grpc.encode_infer(form, InferResponse("m", request.inputs)).whole

    return turn


def _oip_json(lists: str) -> Callable[[], object]:
    tensor = f'{{"name": "x", "datatype": "FP32", "shape": {json.dumps(SHAPE)}, "data": {lists}}}'
    body = f'{{"inputs": [{tensor}]}}'.encode()

    def turn() -> object:
        message = HttpRequest("POST", "/v2/models/m/infer", body=body)
        request, form = codec_http.decode_request(message, "m", "", _SIGNATURE)
        return codec_http.encode_response(form, InferResponse("m", request.inputs))

    return turn


def main() -> int:
    """Measure and print; 1 where a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    gc.disable()
    missed = 0
    print("| decode and encode | grps ms | OIP ms | ratio | target |\n|---|---|---|---|---|")
    for row in rows():
        grps, oip = measure(row, rounds)
        missed += grps > oip * row.target
        print(f"| {row.name} | {grps:.2f} | {oip:.2f} | {grps / oip:.2f} | {row.target:g} |")
    return bool(missed)


if __name__ == "__main__":
    raise SystemExit(main())
