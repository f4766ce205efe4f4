"""KServe's Python server with models for the tests: ``kserve_server.py HTTP_PORT GRPC_PORT
[OPTION …]``, the options being KServe's own.

Run as a script, in a process without tritonclient. KServe binds every interface of the machine, and shares
its gRPC port with whoever else wants it; it has no options for that. Here it gets 127.0.0.1, for itself.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from typing import Any

import grpc.aio
import numpy as np
import uvicorn
from kserve import InferInput, InferOutput, InferRequest, InferResponse, Model, ModelServer

DATATYPES = (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "FP32", "FP64", "BYTES",
)  # fmt: skip


class Base(Model):
    """A model with ``inputs`` inputs of one datatype and shape, and as many outputs."""

    def __init__(self, name: str, datatype: str, shape: list[int], count: int = 1) -> None:
        super().__init__(name)
        self.spec = (datatype, shape, count)
        self.ready = True

    async def get_input_types(self) -> list[dict[str, Any]]:
        return self._described("INPUT")

    async def get_output_types(self) -> list[dict[str, Any]]:
        return self._described("OUTPUT")

    def _described(self, word: str) -> list[dict[str, Any]]:
        datatype, shape, count = self.spec
        return [{"name": f"{word}{n}", "datatype": datatype, "shape": shape} for n in range(count)]

    async def predict(self, payload: InferRequest, *rest: Any, **named: Any) -> InferResponse:
        outputs = []
        for name, datatype, array in await self.outputs(payload):
            made = InferOutput(name, list(array.shape), datatype)
            made.set_data_from_numpy(array, binary_data=payload.from_grpc or payload.use_binary_outputs)
            outputs.append(made)
        # KServe's own types refuse an answer in JSON that has no id
        identity = payload.id if payload.from_grpc else payload.id or str(uuid.uuid4())
        return InferResponse(
            identity,
            self.name,
            outputs,
            use_binary_outputs=payload.use_binary_outputs,
            requested_outputs=payload.request_outputs,
        )

    async def outputs(self, payload: InferRequest) -> list[tuple[str, str, Any]]:
        return [
            (f"OUTPUT{place}", given.datatype, array_of(given)) for place, given in enumerate(payload.inputs)
        ]


class Sums(Base):
    """The sum and the difference of two inputs."""

    async def outputs(self, payload: InferRequest) -> list[tuple[str, str, Any]]:
        first, second = (given.as_numpy() for given in payload.inputs)
        return [("OUTPUT0", "INT32", first + second), ("OUTPUT1", "INT32", first - second)]


class Slow(Base):
    """As many milliseconds as the input says."""

    async def outputs(self, payload: InferRequest) -> list[tuple[str, str, Any]]:
        await asyncio.sleep(float(payload.inputs[0].as_numpy().flat[0]) / 1000)
        return await super().outputs(payload)


class Raises(Base):
    """Never an answer."""

    async def outputs(self, payload: InferRequest) -> list[tuple[str, str, Any]]:
        raise RuntimeError("boom in execute")


class Parameters(Base):
    """What the request said beside the tensors."""

    async def outputs(self, payload: InferRequest) -> list[tuple[str, str, Any]]:
        given = {name: value_of(value) for name, value in (payload.parameters or {}).items()}
        text = json.dumps({"parameters": given, "request_id": payload.id})
        return [("PARAMS", "BYTES", np.array([text.encode()], object))]


def array_of(given: InferInput) -> Any:
    array = given.as_numpy()
    if given.datatype == "BYTES":
        encoded = [each.encode() if isinstance(each, str) else each for each in array.ravel()]
        return np.array(encoded, object).reshape(array.shape)
    return array


def value_of(value: Any) -> Any:
    kind = value.WhichOneof("parameter_choice") if hasattr(value, "WhichOneof") else None
    return getattr(value, kind) if kind else value


class Rows(Model):
    """A model of version 1: each row as it came, next to its negative if there are ``names``."""

    def __init__(self, name: str, names: tuple[str, ...] = ()) -> None:
        super().__init__(name)
        self.names = names
        self.ready = True

    async def predict(self, payload: Any, *rest: Any, **named: Any) -> dict[str, Any]:
        if not isinstance(payload, dict):
            raise TypeError("only version 1 is here")
        if not self.names:
            return {"predictions": payload["instances"]}
        rows = [[row[name] for name in self.names] for row in payload["instances"]]
        return {"predictions": [dict(zip(("same", "other"), row, strict=True)) for row in rows]}


def stay_on_loopback() -> None:
    """Both of KServe's listeners name their address themselves."""
    whole, server = uvicorn.Config.__init__, grpc.aio.server

    def configured(self: Any, app: Any, **options: Any) -> None:
        whole(self, app, **{**options, "host": "127.0.0.1"})

    def made(*given: Any, **options: Any) -> Any:
        own = (*(options.pop("options", None) or ()), ("grpc.so_reuseport", 0))
        found = server(*given, **options, options=own)
        bind = found.add_insecure_port
        found.add_insecure_port = lambda address: bind(address.replace("[::]", "127.0.0.1"))
        return found

    uvicorn.Config.__init__ = configured  # type: ignore[method-assign]
    grpc.aio.server = made


def main() -> None:
    """Serve until the process is told to end."""
    stay_on_loopback()
    http, rpc = (int(text) for text in sys.argv[1:3])
    models: list[Model] = [
        Sums("simple", "INT32", [-1, 16], 2),
        Base("cls", "FP32", [-1, 4]),
        Slow("slow", "INT32", [-1, -1]),
        Raises("raises", "INT32", [-1]),
        Parameters("params", "INT32", [-1]),
        Rows("rows"),
        Rows("named", ("a", "b")),
        *(Base(f"identity_{name.lower()}", name, [-1]) for name in DATATYPES),
    ]
    ModelServer(http_port=http, grpc_port=rpc, workers=1).start(models)


if __name__ == "__main__":
    main()
