"""Bad inputs of GraphPipe over HTTP and tcp."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from interlingua.protocols.graphpipe.writer import infer_request
from interlingua.schemas import Datatype
from interlingua.schemas.graphpipe import TYPES
from tests.e2e.bad_inputs.datatypes import UNNAMED, Claim, claims
from tests.e2e.bad_inputs.wires import Http, Tcp
from tests.protocols.graphpipe.messages import published

ONES = np.ones(3, np.float32)
GOOD = published([], [ONES])
NUMBERS = [datatype for datatype in TYPES if datatype is not Datatype.BYTES]
ENDLESS = struct.pack("<Ii", 4, 0) + struct.pack("<I", 0xFFFFFFFC) * 8


def _messages() -> Iterator[tuple[str, bytes]]:
    yield "an unknown input", published(["Q"], [ONES])
    yield "an unknown output", published([], [ONES], ["Z"])
    yield "an output without a name", published([], [ONES], [""])
    yield "another datatype", published([], [ONES.astype(np.int16)])
    yield "the wrong rank", published([], [ONES[None]])
    yield "strings for numbers", published([], [np.array([b"a", b"b"], dtype=object)])
    yield "no inputs", published([], [])
    yield "two inputs", published([], [ONES, ONES])
    yield "empty", b""
    yield "one byte", b"\0"
    yield "only bytes of 255", b"\xff" * 64
    yield "only zeros", bytes(64)
    yield "a table that refers to itself", ENDLESS
    yield "JSON", b'{"inputs": []}'
    for size in (4, 8, 20, 40, len(GOOD) // 2, len(GOOD) - 9):
        yield f"the first {size} bytes", GOOD[:size]
    for place in (0, 8, 16, 32):
        yield f"255 at byte {place}", GOOD[:place] + b"\xff" * 4 + GOOD[place + 4 :]
    yield "a root beyond the end", struct.pack("<I", 1 << 30) + GOOD[4:]


def _claimed(claim: Claim) -> bytes:
    size = len(claim.data)
    forms = ((TYPES[claim.datatype], claim.shape, size, size),)
    return b"".join(infer_request(b"", (claim.name.encode(),), (), forms, [claim.data]))


def inputs() -> dict[str, Http | Tcp]:
    found: dict[str, Http | Tcp] = {}
    for name, message in _messages():
        found[f"graphpipe/http {name}"] = Http("/graphpipe/identity_fp32", message)
        found[f"graphpipe/tcp {name}"] = Tcp(message)
    for name, model, claim in claims(NUMBERS, but=UNNAMED):
        found[f"graphpipe/http {name}"] = Http(f"/graphpipe/{model}", _claimed(claim))
        # to the one model of the listener, of FP32
        if claim.name == "INPUT0" and model == claim.model:
            found[f"graphpipe/tcp {name}"] = Tcp(_claimed(claim))
    for name, path, method in (
        ("an unknown model", "/graphpipe/absent", "POST"),
        ("an unknown version", "/graphpipe/identity_fp32/9", "POST"),
        ("a version that is no number", "/graphpipe/identity_fp32/x", "POST"),
        ("a model that has a datatype GraphPipe lacks", "/graphpipe/identity_bf16", "POST"),
        ("another method", "/graphpipe/identity_fp32", "PUT"),
        ("metadata of an unknown model", "/graphpipe/absent", "GET"),
        ("no model in the path", "/graphpipe/", "POST"),
        ("gzip that is none", "/graphpipe/identity_fp32", "POST"),
    ):
        headers = {"Content-Encoding": "gzip"} if name.startswith("gzip") else {}
        found[f"graphpipe/http {name}"] = Http(path, GOOD, headers, method)
    return found
