"""The servers of the rows, started when a row first needs one, each a process of its own.

``serving`` is a daemon that runs the built-in identity model and small ONNX models; it is the upstream of all
others as well. ``bridge DIALECT TRANSPORT`` is a daemon with that upstream, ``library DIALECT TRANSPORT`` the
same on the library engines.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from benchmarks import peers, processes
from benchmarks.batched_models import ROOT
from benchmarks.bridging import nginx
from benchmarks.cases import CONFIG, MODEL
from benchmarks.processes import Server
from interlingua.protocols.transport.clients import CLIENTS

TINY = "tiny"
"""The identity as an ONNX file."""

DIGITS = ROOT / "examples" / "models" / "digits" / "1" / "model.onnx"

_RELAYS = {"http1 relay": ("http1_relay", "http"), "http2 relay": ("http2_relay", "grpc")}
_TINY_CONFIG = """
backend: "{backend}"
max_batch_size: 0
input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ -1, -1 ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1, -1 ] }} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
parameters {{ key: "intra_op_thread_count" value {{ string_value: "1" }} }}
"""


def write_tiny(folder: Path, backend: str) -> None:
    """A repository with the identity as an ONNX file; with ``backend`` python it is Triton's."""
    from onnx import TensorProto, helper

    value = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "m"]) for name in ("INPUT0", "OUTPUT0")
    ]
    node = helper.make_node("Identity", ["INPUT0"], ["OUTPUT0"])
    graph = helper.make_graph([node], TINY, value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    version = folder / TINY / "1"
    version.mkdir(parents=True)
    (version / "model.onnx").write_bytes(model.SerializeToString())
    (version.parent / "config.pbtxt").write_text(_TINY_CONFIG.format(backend=backend))
    if backend == "python":
        code = (ROOT / "benchmarks" / "peer_models" / "triton_model.py").read_text()
        (version / "model.py").write_text(code)


def serving(folder: Path) -> dict[str, Any]:
    """A daemon with the built-in identity, the identity as an ONNX file and digits."""
    write_tiny(folder / "models", "onnxruntime")
    return {
        "server": CONFIG["server"],
        "listeners": [
            {"listen": "127.0.0.1:0", "transport": "http"},
            {"listen": "127.0.0.1:0", "transport": "grpc"},
            {"listen": "127.0.0.1:0", "transport": "brpc"},
        ],
        "model_repository": [{"path": str(folder / "models")}],
        "models": {**CONFIG["models"], "digits": {"backend": "onnxruntime", "path": str(DIGITS.parents[1])}},
    }


def bridge(upstream: str, dialect: str, transport: str, engine: str = "native") -> dict[str, Any]:
    """A daemon in front of ``upstream``, with the same model by the same name."""
    options: dict[str, Any] = {"dialect": dialect, "transport": transport, "urls": [upstream]}
    if transport in ("http", "grpc") and (transport, engine) in CLIENTS:
        options["engine"] = engine
    return {
        "server": CONFIG["server"],
        "listeners": [
            {"listen": "127.0.0.1:0", "transport": "http", "engine": engine},
            {"listen": "127.0.0.1:0", "transport": "grpc", "engine": engine},
        ],
        "models": {MODEL: {"upstream": "there", "remote_model": MODEL}},
        "upstreams": {"there": options},
    }


class Servers:
    """Servers by name; they end with ``running``."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self._folder = folder
        self._running = running
        self._found: dict[str, Server | None] = {}

    def __getitem__(self, name: str) -> Server | None:
        """The server of that name, None where its program is not installed."""
        if name not in self._found:
            folder = self._folder / name.replace(" ", "_")
            folder.mkdir()
            started = self._start(name, folder)
            self._found[name] = None if started is None else self._running.enter_context(started)
        return self._found[name]

    def _start(self, name: str, folder: Path) -> AbstractContextManager[Server] | None:
        kind, *target = name.split()
        if name in _RELAYS:
            module, transport = _RELAYS[name]
            return processes.relay(module, transport, self._address(transport))
        if kind in ("bridge", "library"):
            dialect, transport = target
            engine = "library" if kind == "library" else "native"
            return processes.daemon(folder, bridge(self._address(transport), dialect, transport, engine))
        one: Callable[[Path], AbstractContextManager[Server] | None] = {
            "serving": lambda folder: processes.daemon(folder, serving(folder)),
            "tritonclient": lambda _: processes.relay("tritonclient_bridge", "http", self._address("grpc")),
            "nginx": self._nginx,
            "Triton": _triton,
        }[name]
        return one(folder)

    def _address(self, transport: str) -> str:
        upstream = self["serving"]
        assert upstream is not None
        return upstream.addresses[transport]

    def _nginx(self, folder: Path) -> AbstractContextManager[Server] | None:
        program, upstream = nginx.installed(), self["serving"]
        assert upstream is not None
        return nginx.nginx(program, folder, upstream) if program else None


def _triton(folder: Path) -> AbstractContextManager[Server] | None:
    place = peers.environment("TRITON_ENVIRONMENT")
    if place is None:
        return None
    write_tiny(folder / "models", "python")
    return peers.triton(place, folder, folder / "models")
