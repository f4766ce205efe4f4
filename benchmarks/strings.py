"""What a tensor of a million strings costs GraphPipe's codec beside OIP's: ``python -m benchmarks.strings``.

GraphPipe has a vector of offsets and every string by itself, aligned; OIP has the strings one behind the
other, which is how they stand here. Each round decodes a request and encodes an answer with the same tensor,
in turns. Times are CPU milliseconds, the fastest of the rounds; the ratio is the result. With ``--shared``
the offsets of GraphPipe's message all lead to one string, as builders write equal strings.
"""

from __future__ import annotations

import argparse
import gc
import struct
import time
from collections.abc import Callable

import numpy as np

from interlingua.protocols.graphpipe import codec as graphpipe
from interlingua.protocols.graphpipe import writer
from interlingua.protocols.oip import codec_http
from interlingua.protocols.wire import HttpRequest
from interlingua.schemas import Datatype, InferRequest, InferResponse, Signature, Tensor, TensorSpec

STRINGS = 1_000_000
ROUNDS = 5
TARGET = 4.0

_SPECS = (TensorSpec("x", Datatype.BYTES, (-1,)),)
_SIGNATURE = Signature(_SPECS, _SPECS)

Turn = Callable[[], Tensor]
"""Decodes a request and encodes its answer: the tensor."""


def turns(count: int, shared: bool) -> tuple[Turn, Turn]:
    """GraphPipe's turn and OIP's, of a tensor with ``count`` strings."""
    word = b"a string"
    words = [word] * count if shared else [b"string %d" % number for number in range(count)]
    tensor = Tensor.from_numpy("x", np.array(words, dtype=object))
    asked = InferRequest("m", (tensor,))
    piped = _sharing(word, count) if shared else b"".join(graphpipe.encode_request(asked))
    headers, parts = codec_http.encode_request(asked, binary=True)
    lower = {name.lower(): value for name, value in headers}
    body = b"".join(parts)

    def through_graphpipe() -> Tensor:
        request, form = graphpipe.decode_request(graphpipe.open_request(piped), _SIGNATURE)
        graphpipe.encode_response(form, request.inputs)
        return request.inputs[0]

    def through_oip() -> Tensor:
        message = HttpRequest("POST", "/v2/models/m/infer", headers=lower, body=body)
        request, form = codec_http.decode_request(message, "m", "", _SIGNATURE)
        codec_http.encode_response(form, InferResponse("m", request.inputs))
        return request.inputs[0]

    return through_graphpipe, through_oip


def _sharing(word: bytes, count: int) -> bytes:
    offsets = np.arange(4 * count, 0, -4, dtype="<u4").tobytes()
    block = offsets + struct.pack("<I", len(word)) + word + bytes(4)
    form = (writer.STRING, (count,), count, len(block))
    return b"".join(writer.infer_request(b"", (b"x",), (), (form,), [block]))


def measure(both: tuple[Turn, Turn], rounds: int) -> tuple[float, float]:
    """The fastest round of either, in CPU milliseconds."""
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for index, turn in enumerate(both):
            before = time.process_time_ns()
            turn()
            best[index] = min(best[index], (time.process_time_ns() - before) / 1e6)
    return best[0], best[1]


def main() -> int:
    """Measure and print; 1 where the target was missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--count", type=int, default=STRINGS)
    parser.add_argument("--shared", action="store_true")
    arguments = parser.parse_args()
    gc.disable()
    ours, oip = measure(turns(arguments.count, arguments.shared), arguments.rounds)
    print("| strings | GraphPipe ms | OIP ms | ratio | target |\n|---|---|---|---|---|")
    print(f"| {arguments.count:,} | {ours:.0f} | {oip:.0f} | {ours / oip:.2f} | {TARGET:g} |")
    return int(ours > oip * TARGET)


if __name__ == "__main__":
    raise SystemExit(main())
