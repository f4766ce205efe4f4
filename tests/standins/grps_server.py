"""A grps server: what it answers, whatever the transport; the transports are ``grps_http_server``,
``grps_grpc_server`` and ``grps_brpc_server``.

``your_model-1.0.0`` is the default model. It gives back what it gets, unless ``str_data`` tells it otherwise:
``raise:TEXT``, ``err:TEXT``, ``bin``, ``binempty``, ``empty``, ``all``, ``nan``; while streaming three pieces, or
``stream-kinds``, ``stream-bytes``, ``stream-err``, ``stream-raise``, ``stream-none``. ``simple-1.0.0`` adds and subtracts
tensors as strictly as the original's tensor converters take them, ``scale-2.0`` doubles its one unnamed
tensor, ``my-dashed-model-2.0.0-rc1`` always says ``tag:dashed``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import yaml

from tests.standins.grps_contract import GrpsMessage, array_of, gtensors, tensor

DEFAULT = "your_model-1.0.0"
ALL: dict[str, Any] = {
    "u8": np.array([0, 1, 255], np.uint8),
    "i8": np.array([-128, 0, 127], np.int8),
    "i16": np.array([-32768, 0, 32767], np.int16),
    "i32": np.array([-(2**31), 0, 2**31 - 1], np.int32),
    "i64": np.array([-(2**63), 0, 2**63 - 1], np.int64),
    "f16": np.array([0.1, 1, 65504, -0.0], np.float16),
    "f32": np.array([0.1, 1, 3.4e38, 1e-7, 16777216], np.float32),
    "f64": np.array([0.1, 1, 1e300, 1e-7]),
    "s": np.array(["a", '你好 "q" \n'], object),
    "scalar": np.array(7, np.float32),
    "empty": np.zeros(0, np.float32),
}


class Fault(Exception):
    """A failure that is told in band."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class ModelFault(Exception):
    """An exception out of a model, which each flavor dresses in its own way."""


@dataclass
class GrpsServer:
    """One server. ``seen`` are the messages that models were asked with, ``online`` whether it is ready, by
    interface: the Python server keeps a flag for each. ``metadata_asked`` counts the calls of ``metadata/server``."""

    flavor: str = "py"
    seen: list[Any] = field(default_factory=list)
    online: dict[str, bool] = field(default_factory=dict)
    metadata_asked: int = 0

    def predict(self, message: Any) -> Any:
        """The reply to ``message``, with its status. Never raises."""
        self.seen.append(message)
        return self._within(lambda: self._model(message.model)(message))

    def stream(self, message: Any) -> Iterator[Any]:
        """The pieces of a streamed reply; a failure is the last one."""
        self.seen.append(message)
        try:
            self._model(message.model)
            for piece in _pieces(message):
                yield self.succeeded(piece)
        except (Fault, ModelFault) as fault:
            yield self.failed(fault)

    def health(self, interface: str, what: str) -> Any:
        """The reply to ``live``, ``ready``, ``online`` or ``offline`` over ``interface``."""
        flag = interface if self.flavor == "py" else "all"
        if what in ("online", "offline"):
            self.online[flag] = what == "online"
        if what != "ready" or self.online.get(flag):
            return self.succeeded(GrpsMessage())
        # over gRPC the Python server uses another code than everywhere else
        code = 403 if (self.flavor, interface) == ("py", "grpc") else 503
        return self.failed(Fault(code, "Service Unavailable"))

    def server_metadata(self, interface: str) -> Any:
        """The two configuration files, in the flavor's order."""
        self.metadata_asked += 1
        models, server = yaml.safe_dump(_INFERENCE, sort_keys=False), yaml.safe_dump(_SERVER, sort_keys=False)
        told = f"{models}\n{server}" if self.flavor == "py" else f"{server}\n{models}".replace("null", "~")
        message = GrpsMessage(str_data=told)
        # over RPC the C++ server forgets the status
        return message if self.flavor == "cpp" and interface != "http" else self.succeeded(message)

    def model_metadata(self, message: Any) -> Any:
        """The block of the model that ``str_data`` names, without its version."""
        known = _INFERENCE["models"] if self.flavor == "py" else _INFERENCE["models"][:1]
        for model in known:
            if model["name"] == message.str_data:
                return self.succeeded(GrpsMessage(str_data=yaml.safe_dump(model)))
        return self.failed(Fault(404, "Model not found." if self.flavor == "py" else "Not Found"))

    def succeeded(self, message: Any) -> Any:
        """``message`` with the status of success."""
        message.status.code, message.status.msg, message.status.status = 200, "OK", 1
        return message

    def failed(self, fault: Fault | ModelFault) -> Any:
        """A reply that tells ``fault``."""
        message = GrpsMessage()
        message.status.code, message.status.status = getattr(fault, "code", 500), 2
        text = str(fault)
        if isinstance(fault, ModelFault):
            trace = f'Traceback (most recent call last):\n  File "model.py", line 1\nRuntimeError: {text}\n'
            text = trace if self.flavor == "py" else f"[InfererException] {text}"
        message.status.msg = text
        return message

    def _within(self, answer: Callable[[], Any]) -> Any:
        try:
            return self.succeeded(answer())
        except (Fault, ModelFault) as fault:
            return self.failed(fault)

    def _model(self, name: str) -> Callable[[Any], Any]:
        model = MODELS.get(name or DEFAULT)
        if model is not None:
            return model
        if self.flavor == "py":
            raise ModelFault(f"Model {name} not found.")
        raise Fault(500, f"[ExecutorException] Not found model: {name}")


def _echo(message: Any) -> Any:
    reply = GrpsMessage()
    reply.CopyFrom(message)
    if message.WhichOneof("data_oneof") != "str_data":
        return reply
    kind, _, text = message.str_data.partition(":")
    if kind == "raise":
        raise ModelFault(text)
    if kind == "err":
        raise Fault(500, text)
    return {
        "bin": lambda: GrpsMessage(bin_data=b"\0\1bin\xff"),
        "binempty": lambda: GrpsMessage(bin_data=b""),
        "empty": GrpsMessage,
        "all": lambda: gtensors(**ALL),
        "nan": lambda: gtensors(f=np.array([np.nan, np.inf, -np.inf], np.float32)),
    }.get(kind, lambda: reply)()


def _pieces(message: Any) -> Iterator[Any]:
    kind = message.str_data
    if kind == "stream-none":
        return
    if kind == "stream-bytes":
        yield from (GrpsMessage(bin_data=piece) for piece in (b"data: {\0", b"\xff}\n\n", b'"'))
        return
    if kind == "stream-kinds":
        yield GrpsMessage(str_data='one {"status": "\\')
        yield gtensors(**ALL)
        yield GrpsMessage(bin_data=b"\0raw\xff")
        yield GrpsMessage()
        return
    if message.WhichOneof("data_oneof") == "gmap":
        yield GrpsMessage(gmap=message.gmap)
        yield gtensors()
        yield GrpsMessage(str_data="between")
        yield GrpsMessage(gmap={"s_b": {"key": b"\xff"}})
        return
    for number in range(3):
        yield GrpsMessage(str_data=f"stream data {number}")
        if kind == "stream-err":
            raise Fault(500, "bad thing mid-stream")
        if kind == "stream-raise":
            raise ModelFault("boom mid-stream")


def _converted(message: Any) -> list[Any]:
    """The tensors of ``message`` as the original's converters take them."""
    if message.WhichOneof("data_oneof") != "gtensors" or not message.gtensors.tensors:
        raise ModelFault("trt tensor converter preprocess failed, input has no gtensors.")
    names = [given.name for given in message.gtensors.tensors]
    if any(names) and not all(names):
        raise ModelFault("trt tensor converter preprocess failed, tensor name is empty.")
    arrays = []
    for given in message.gtensors.tensors:
        if given.name and names.count(given.name) > 1:
            raise ModelFault(f"trt tensor converter preprocess failed, tensor name {given.name} duplicated.")
        try:
            arrays.append(array_of(given))
        except AssertionError as wrong:
            raise ModelFault(f"generic tensor to trt tensor error, tensor: {wrong} size not match") from wrong
    return arrays


def _simple(message: Any) -> Any:
    arrays = dict(zip([given.name for given in message.gtensors.tensors], _converted(message), strict=True))
    if set(arrays) != {"INPUT0", "INPUT1"} or any(array.dtype != np.int32 for array in arrays.values()):
        raise ModelFault(f"no such inputs: {sorted(arrays)}")
    one, two = arrays["INPUT0"], arrays["INPUT1"]
    return gtensors(OUTPUT0=one + two, OUTPUT1=one - two)


def _scale(message: Any) -> Any:
    [given] = _converted(message)
    reply = GrpsMessage()
    reply.gtensors.tensors.append(tensor("", given + given))
    return reply


MODELS: dict[str, Callable[[Any], Any]] = {
    DEFAULT: _echo,
    "my-dashed-model-2.0.0-rc1": lambda message: GrpsMessage(str_data="tag:dashed"),
    "simple-1.0.0": _simple,
    "scale-2.0": _scale,
}

_INFERENCE: dict[str, Any] = {
    "models": [
        {
            "name": name,
            "version": version,
            "device": "cpu",
            "inp_device": None,
            "inferer_type": "customized",
            "inferer_name": "echo_inferer",
            "inferer_path": None,
            "inferer_args": {"customized_op_paths": None},
            "converter_type": "none",
            "batching": {"type": "none", "max_batch_size": 16, "batch_timeout_us": 1000},
        }
        for name, version in (
            ("your_model", "1.0.0"),
            ("my-dashed-model", "2.0.0-rc1"),
            ("simple", "1.0.0"),
            # what YAML takes for a number
            ("scale", 2.0),
        )
    ],
    "dag": {
        "type": "sequential",
        "name": "your_dag",
        "nodes": [{"name": "node-1", "type": "model", "model": DEFAULT}],
    },
}
_SERVER: dict[str, Any] = {
    "interface": {"framework": "http+grpc", "host": "127.0.0.1", "port": "7080,7081"},
    "max_connections": 1000,
    "max_concurrency": 32,
    "log": {"log_dir": "./logs", "log_backup_count": 7},
}
