"""The rows: which server, against which baselines, on which request, and what their ratio may be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.bridging.requests import ModelUse, Request, request
from benchmarks.bridging.servers import DIGITS, TINY

SIZES = (64, 64 << 10, 4 << 20)
COUNTS = {64: 2400, 256: 2400, 64 << 10: 960, 4 << 20: 96}
"""How many requests of a size make a turn."""

TITLES = {
    "oip": "OIP",
    "trtis": "TRTIS",
    "graphpipe": "GraphPipe",
    "grps": "grps",
    "tfserving": "TensorFlow Serving",
}
WIRES = {"http": "HTTP", "grpc": "gRPC", "brpc": "bRPC", "tcp": "tcp"}


@dataclass(frozen=True)
class Baseline:
    """A peer by the name of its server, and the largest ratio; None: for comparison. ``model``: the peer
    serves another one."""

    server: str
    target: float | None = None
    model: ModelUse | None = None


@dataclass(frozen=True)
class Row:
    """``server`` answers requests of ``dialect`` over ``transport`` with ``size`` bytes of numbers."""

    name: str
    server: str
    dialect: str
    transport: str
    size: int
    baselines: tuple[Baseline, ...]
    model: ModelUse | None = None

    @property
    def title(self) -> str:
        """The name with its size."""
        return f"{self.name}, {size_text(self.size)}"

    @property
    def count(self) -> int:
        """How many requests make a turn."""
        # numbers as text cost twenty times as much as bytes
        return max(32, COUNTS[self.size] // (20 if self.dialect == "grps" and self.size > 64 else 1))

    def request(self, baseline: Baseline | None = None) -> Request:
        """What is sent to the server, or to a peer."""
        model = baseline.model if baseline is not None and baseline.model is not None else self.model
        return request(self.dialect, self.transport, self.size, model)


def size_text(size: int) -> str:
    """In the unit that fits."""
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def _pair(caller: str, over: str, dialect: str, transport: str) -> str:
    return f"{TITLES[caller]} {WIRES[over]} -> {TITLES[dialect]} {WIRES[transport]}"


def _passed() -> Iterator[Row]:
    """Caller and upstream alike, against a relay that reads no message."""
    for transport, targets, relay in (
        ("grpc", (2.5, 1.5, 1.0), "http2 relay"),
        ("http", (2.5, 1.5, 0.8), "http1 relay"),
    ):
        for size, target in zip(SIZES, targets, strict=True):
            baselines = [Baseline("nginx", target)]
            if size == 64:
                baselines.append(Baseline(relay, 1.3))
            baselines += [Baseline(f"library oip {transport}"), Baseline("serving")]
            name = f"{_pair('oip', transport, 'oip', transport)}, passed"
            yield Row(name, f"bridge oip {transport}", "oip", transport, size, tuple(baselines))


def _decoded() -> Iterator[Row]:
    """Every other caller over HTTP, to OIP, against the server that answers the same without a bridge."""
    for caller in ("oip", "trtis", "graphpipe", "grps"):
        for transport in ("grpc", "http"):
            if (caller, transport) == ("oip", "http"):
                continue
            for size in SIZES:
                baselines = [Baseline("serving", 2.0 if size == 64 else 1.8)]
                if (caller, transport) == ("trtis", "grpc") and size < 4 << 20:
                    baselines.append(Baseline("tritonclient", 0.35))
                baselines.append(Baseline(f"library oip {transport}"))
                name = _pair(caller, "http", "oip", transport)
                yield Row(name, f"bridge oip {transport}", caller, "http", size, tuple(baselines))


def _to_others() -> Iterator[Row]:
    """From OIP to every other dialect."""
    for over in ("http", "grpc"):
        for dialect, transport in (("trtis", "http"), ("graphpipe", "http"), ("grps", "brpc")):
            for size in SIZES:
                name = _pair("oip", over, dialect, transport)
                baseline = Baseline("serving", 2.2)
                yield Row(name, f"bridge {dialect} {transport}", "oip", over, size, (baseline,))


def _serving() -> Iterator[Row]:
    """What the daemon answers itself: large messages over gRPC, and tiny models."""
    tiny = ModelUse(TINY)
    for size, target in zip(SIZES[1:], (0.6, 0.5), strict=True):
        yield Row(
            "serving OIP gRPC, ONNX", "serving", "oip", "grpc", size, (Baseline("Triton", target),), tiny
        )
    digits = ModelUse("digits", "image", ("label", "probabilities"), DIGITS)
    baselines = (Baseline("serving", 1.5, ModelUse()),)
    for over in ("http", "grpc"):
        yield Row(f"serving OIP {WIRES[over]}, ONNX identity", "serving", "oip", over, 64, baselines, tiny)
        yield Row(f"serving OIP {WIRES[over]}, digits", "serving", "oip", over, 256, baselines, digits)


ROWS = (*_passed(), *_decoded(), *_to_others(), *_serving())
