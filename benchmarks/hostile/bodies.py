"""Requests whose bodies cost a decoder far more than their sender, one after the other on one connection."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from benchmarks.cases import MODEL, OIP_METHOD, http_request
from benchmarks.hostile import payloads
from benchmarks.hostile.attack import Attack, Target
from benchmarks.hostile.servers import STRINGS
from benchmarks.wire import Http2

_PATH = f"/v2/models/{STRINGS}/infer"
_LOG_METHOD = "/inference.GRPCInferenceService/LogSettings"
_CLASSIFY_METHOD = "/tensorflow.serving.PredictionService/Classify"
_RELOAD_METHOD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"
_GRPS_METHOD = "/grps.protos.v1.GrpsService/Predict"
_JSON = {"content-type": "application/json", "connection": "close"}
_GZIP = {**_JSON, "content-encoding": "gzip"}
_BINARY = {"content-type": "application/octet-stream", "connection": "close"}
_READ_BYTES = 1 << 20
_MIB = 1 << 20

Body = Callable[[], bytes]


def _post(path: str, headers: dict[str, str], body: Body, target: Target) -> int:
    """Send the request until the time is over, and read its answers."""
    request = http_request(path, headers, body())
    while target.going:
        with suppress(ConnectionError), target.connect() as sock:
            sock.sendall(request)
            while sock.recv(_READ_BYTES):
                pass
    return 0


def _binary(body: Body) -> Body:
    """``body`` as the binary data of one input of as many empty strings, after its JSON."""
    data = body()
    shape = (1, len(data) // 4)
    head = payloads.json_of(b"null", shape, "BYTES").replace(
        b'"data":null', b'"parameters":{"binary_data_size":%d}' % len(data)
    )
    return lambda: head + data


def _post_binary(body: Body, target: Target) -> int:
    whole = _binary(body)()
    length = whole.index(b"}]}") + 3
    headers = {**_BINARY, "inference-header-content-length": str(length)}
    return _post(_PATH, headers, lambda: whole, target)


class _CompressedCall(Http2):
    """A call whose message is in gzip already."""

    def __init__(self, method: str, message: bytes) -> None:
        super().__init__(method, message)
        self._body = memoryview(payloads.grpc_frame(message, compressed=True))
        self._sent = len(self._body)
        self._block += b"\0\x0dgrpc-encoding\x04gzip"


def _call(wire: type[Http2], method: str, body: Body, target: Target) -> int:
    """Call until the time is over; calls are refused, which ends their connection here."""
    message = body()
    while target.going:
        with suppress(ConnectionError, RuntimeError), target.connect() as sock:
            call = wire(method, message)
            call.begin()
            while True:
                while call.outgoing:
                    sock.sendall(call.outgoing.popleft())
                data = sock.recv(_READ_BYTES)
                if not data or call.feed(data) is not None:
                    break
    return 0


def _frames(body: Body, target: Target) -> int:
    """Send the message over tcp until the time is over."""
    message = body()
    while target.going:
        with suppress(ConnectionError), target.connect() as sock:
            sock.sendall(len(message).to_bytes(4, "little") + message)
            sock.recv(_READ_BYTES)
    return 0


def _gzipped(body: Callable[[int], bytes], count: int) -> bytes:
    return payloads.gzipped(body(count))


def _http(name: str, body: Body, path: str = _PATH, headers: dict[str, str] = _JSON) -> Attack:
    return Attack(name, "http", partial(_post, path, headers, body), memory_mib=2048)


def _grpc(name: str, body: Body, method: str = OIP_METHOD, wire: type[Http2] = Http2) -> Attack:
    return Attack(name, "grpc", partial(_call, wire, method, body), memory_mib=2048)


ATTACKS = (
    _http(
        "gzip of 20 million JSON strings",
        partial(_gzipped, payloads.empty_strings, 20_000_000),
        headers=_GZIP,
    ),
    _http(
        "gzip of 9 million equal keys",
        partial(_gzipped, payloads.equal_keys, 9_000_000),
        headers=_GZIP,
    ),
    _http("15 million JSON strings", partial(payloads.empty_strings, 15_000_000)),
    _http("60 MB of JSON numbers", partial(payloads.numbers, 12_000_000), f"/v2/models/{MODEL}/infer"),
    _http("60 MB of nested arrays", partial(payloads.arrays, 15_000_000), f"/v2/models/{MODEL}/infer"),
    _http("4 million keys", partial(payloads.distinct_keys, 4_000_000)),
    _http("1 million tensors without elements", partial(payloads.many_tensors, 1_000_000)),
    _http("30 million opening brackets", partial(payloads.deep, 30_000_000)),
    _http("60 MB of escaped quotes", partial(payloads.open_string, 60 * _MIB)),
    _http("600,000 integers of 100 digits", partial(payloads.long_numbers, 600_000, 100)),
    _http("invalid UTF-8 at the end of 60 MB", partial(payloads.invalid_at_the_end, 12_000_000)),
    _http("grps strings in JSON", partial(payloads.grps_strings, 12_000_000), "/grps/v1/infer/predict"),
    _http("grps numbers in JSON", partial(payloads.grps_floats, 15_000_000), "/grps/v1/infer/predict"),
    _http(
        "16 MB of GraphPipe strings",
        partial(payloads.graphpipe_strings, 1_300_000),
        f"/graphpipe/{STRINGS}",
        _BINARY,
    ),
    Attack(
        "15 million empty strings in binary data",
        "http",
        partial(_post_binary, partial(payloads.packed_strings, 15_000_000)),
        memory_mib=2048,
    ),
    _grpc("2 MB of gzip with 2 GiB of zeros", partial(payloads.gzip_zeros, 2 << 30), wire=_CompressedCall),
    _grpc("15 million empty strings in raw contents", partial(payloads.raw_message, 15_000_000)),
    _grpc("15 million strings in typed contents", partial(payloads.typed_message, 15_000_000)),
    _grpc("10 million parameters", partial(payloads.parameters_message, 5_000_000)),
    _grpc("30 million unknown fields", partial(payloads.small_fields, 60 * _MIB)),
    _http(
        "a configuration of 4 million members",
        partial(payloads.configuration, 4_000_000),
        f"/v2/repository/models/{MODEL}/load",
    ),
    _grpc("4 million settings", partial(payloads.settings_message, 4_000_000), _LOG_METHOD),
    _grpc(
        "30 million examples without features",
        partial(payloads.examples_message, 30_000_000),
        _CLASSIFY_METHOD,
    ),
    _grpc("a list of 3 million models", partial(payloads.model_list, 3_000_000), _RELOAD_METHOD),
    _grpc("grps strings in protobuf", partial(payloads.grps_text_message, 15_000_000), _GRPS_METHOD),
    _grpc("grps map in protobuf", partial(payloads.grps_map, 3_000_000), _GRPS_METHOD),
)
