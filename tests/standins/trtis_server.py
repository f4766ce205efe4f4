"""A version 1 server on plain aiohttp and grpcio, by the facts of the original one.

It answers as release 1.15 does: application errors inside an answer, requests cut by the model's
configuration, raw outputs before the header that describes them. Shared memory is left out: nobody
may ask an upstream for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from aiohttp import web
from google.protobuf import json_format, text_format

from tests.standins.trtis_contract import (
    LATEST,
    NUMPY,
    SERVICE,
    datatype_name,
    enum,
    from_line,
    message,
    one_line,
    pack,
    parse,
    unpack,
)

BINARY = "application/octet-stream"
VERSION = 3
"""The one version of every model here."""


@dataclass(frozen=True)
class Model:
    """A model: its configuration as clients see it, what it computes, the names of its classes."""

    config: Any
    run: Callable[..., Sequence[Any]]
    labels: tuple[str, ...] = ()


def model(
    name: str,
    tensors: tuple[list[str], list[str]],
    datatype: str,
    dims: list[int],
    run: Callable[..., Sequence[Any]],
    max_batch_size: int = 0,
    labels: tuple[str, ...] = (),
) -> Model:
    """A model whose tensors all have one datatype and one shape."""
    config = message("ModelConfig", name=name, platform="custom", max_batch_size=max_batch_size)
    config.version_policy.latest.num_versions = 1
    for side, names in zip((config.input, config.output), tensors, strict=True):
        for each in names:
            side.add(name=each, data_type=datatype, dims=dims)
    if labels:
        config.output[0].label_filename = "labels.txt"
    config.instance_group.add(name=name, count=1, kind="KIND_CPU")
    return Model(config, run, labels)


def _sums(a: Any, b: Any) -> Sequence[Any]:
    return a + b, a - b


def _string_sums(a: Any, b: Any) -> Sequence[Any]:
    left, right = (np.vectorize(int, otypes=[np.int64])(side) for side in (a, b))
    as_text = np.vectorize(lambda number: str(number).encode(), otypes=[np.object_])
    return as_text(left + right), as_text(left - right)


TWO = (["INPUT0", "INPUT1"], ["OUTPUT0", "OUTPUT1"])
ONE = (["INPUT0"], ["OUTPUT0"])
MODELS = [
    model("simple", TWO, "TYPE_INT32", [16], _sums, 8),
    model("simple_string", TWO, "TYPE_STRING", [16], _string_sums, 8),
    model("classy", (["DATA"], ["PROB"]), "TYPE_FP32", [5], lambda x: [x], 4, ("ant", "bee", "cat", "dog", "elk")),
    *(
        model("identity_bytes" if name == "TYPE_STRING" else f"identity_{name[5:].lower()}", ONE, name, [-1], lambda x: [x])
        for name in NUMPY
    ),
]  # fmt: skip


class Fault(Exception):
    """An application error: a code of ``RequestStatusCode`` and the text."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@dataclass
class Seen:
    """What came: the model, the version, the header and the input bytes of every inference; models loaded
    and unloaded; the HTTP requests for an inference."""

    inferences: list[tuple[str, int, Any, list[bytes]]] = field(default_factory=list)
    controls: list[tuple[str, str]] = field(default_factory=list)
    http: list[web.Request] = field(default_factory=list)


class TrtisServer:
    """What the two transports share."""

    def __init__(self, seen: Seen, models: Sequence[Model] = MODELS) -> None:
        self.seen = seen
        self.models = {each.config.name: each for each in models}
        self._count = 0

    def admit(self) -> Any:
        """The status of a new request, a success as yet."""
        self._count += 1
        return message("RequestStatus", code="SUCCESS", server_id="standin:7", request_id=self._count)

    def status(self, name: str) -> Any:
        """The status of the server with one model, or with all."""
        if name and name not in self.models:
            raise Fault("INVALID_ARG", f"no status available for unknown model '{name}'")
        status = message(
            "ServerStatus", id="standin:7", version="1.15.0", uptime_ns=5, ready_state="SERVER_READY"
        )
        for each in [name] if name else self.models:
            entry = status.model_status[each]
            entry.config.CopyFrom(self.models[each].config)
            entry.version_status[VERSION].ready_state = 1
        return status

    def health(self, mode: str) -> bool:
        if mode not in ("live", "ready"):
            raise Fault("UNKNOWN", f"unknown health mode '{mode}'")
        return True

    def control(self, kind: str, name: str) -> None:
        self.seen.controls.append((kind, name))
        if kind == "load" and name not in self.models:
            raise Fault("INTERNAL", f"failed to load '{name}', no version is available")

    def index(self) -> Any:
        return message("ModelRepositoryIndex", models=[{"name": name} for name in sorted(self.models)])

    def sizes(self, name: str, version: int, header: Any) -> list[int]:
        """The bytes that each input must have. Raises the original's words for a bad header."""
        found = self.models.get(name)
        if found is None:
            raise Fault("UNAVAILABLE", f"Request for unknown model: '{name}' is not found")
        if version not in (LATEST, VERSION):
            raise Fault("UNAVAILABLE", f"Request for unknown model: '{name}' version {version} is not found")
        config = found.config
        if header.batch_size < 1:
            raise Fault("INVALID_ARG", f"inference request batch-size must be >= 1 for '{name}'")
        if header.batch_size > max(config.max_batch_size, 1):
            limit = config.max_batch_size
            raise Fault("INVALID_ARG", f"inference request batch-size must be <= {limit} for '{name}'")
        specs = {spec.name: spec for spec in config.input}
        if len(header.input) != len(specs):
            text = f"expected {len(specs)} inputs but got {len(header.input)} inputs for model '{name}'"
            raise Fault("INVALID_ARG", text)
        known = {spec.name for spec in config.output}
        for output in header.output:
            if output.name not in known:
                text = f"unexpected inference output '{output.name}' for model '{name}'"
                raise Fault("INVALID_ARG", text)
        return [self._size(name, specs, entry, header.batch_size) for entry in header.input]

    def _size(self, name: str, specs: dict[str, Any], entry: Any, batch_size: int) -> int:
        spec = specs.get(entry.name)
        if spec is None:
            raise Fault("INVALID_ARG", f"unexpected inference input '{entry.name}' for model '{name}'")
        dims = list(entry.dims) or list(spec.dims)
        if len(dims) != len(spec.dims) or any(e not in (-1, d) for d, e in zip(dims, spec.dims, strict=True)):
            text = f"unexpected shape for input '{entry.name}' for model '{name}'. Expected {list(spec.dims)}, got {dims}"
            raise Fault("INVALID_ARG", text)
        if -1 in dims:
            text = f"model supports variable-size for input '{entry.name}', request must specify input shape for model '{name}'"
            raise Fault("INVALID_ARG", text)
        datatype = datatype_name(spec.data_type)
        if datatype == "TYPE_STRING":
            return int(entry.batch_byte_size)
        size = np.dtype(NUMPY[datatype]).itemsize * int(np.prod(dims, dtype=np.int64)) * batch_size
        if entry.batch_byte_size not in (0, size):
            text = f"specific batch-byte-size for input '{entry.name}' does not match expected byte-size"
            raise Fault("INVALID_ARG", text)
        return size

    def infer(self, name: str, version: int, header: Any, raws: list[bytes]) -> tuple[Any, list[bytes]]:
        """The header of the answer and the bytes of every output, none for a classification."""
        self.seen.inferences.append((name, version, header, raws))
        found = self.models[name]
        batched = found.config.max_batch_size > 0
        given = {}
        for entry, raw in zip(header.input, raws, strict=True):
            spec = next(spec for spec in found.config.input if spec.name == entry.name)
            dims = list(entry.dims) or list(spec.dims)
            shape = [header.batch_size, *dims] if batched else dims
            given[entry.name] = unpack(raw, datatype_name(spec.data_type), shape)
        try:
            arrays = found.run(*(given[spec.name] for spec in found.config.input))
        except ValueError as error:
            raise Fault("INTERNAL", f"the model said no: {error}") from error
        computed = {spec.name: array for spec, array in zip(found.config.output, arrays, strict=True)}
        answer = message(
            "InferResponseHeader",
            model_name=name,
            model_version=VERSION,
            batch_size=header.batch_size,
            id=header.id,
        )
        parts = []
        for asked in header.output:
            array, output = computed[asked.name], answer.output.add(name=asked.name)
            if asked.cls.count:
                for row in array if batched else array[None]:
                    _rank(output.batch_classes.add(), row.ravel(), asked.cls.count, found.labels)
                parts.append(b"")
                continue
            parts.append(pack(array))
            output.raw.dims.extend(array.shape[1:] if batched else array.shape)
            output.raw.batch_byte_size = len(parts[-1])
        return answer, parts


def _rank(classes: Any, row: Any, count: int, labels: tuple[str, ...]) -> None:
    for index in sorted(range(len(row)), key=lambda i: -row[i])[:count]:
        classes.cls.add(idx=index, value=row[index], label=labels[index] if labels else "")


def failed(status: Any, fault: Fault) -> Any:
    """The status of a request that failed."""
    status.code = enum("RequestStatusCode").values_by_name[fault.code].number
    status.msg = fault.text
    return status


# ---- HTTP


def trtis_http_server(server: TrtisServer) -> web.Application:
    """The endpoints of version 1; whatever else comes is a bare 400."""

    def answer(status: Any, body: bytes = b"", **headers: str) -> web.Response:
        code = 200 if status.code == 1 else 400
        return web.Response(status=code, body=body, headers={**headers, "NV-Status": one_line(status)})

    async def infer(request: web.Request) -> web.Response:
        server.seen.http.append(request)
        status, body = server.admit(), await request.read()
        name = request.match_info["model"]
        version = int(request.match_info.get("version", LATEST))
        header = from_line("InferRequestHeader", request.headers["NV-InferRequest"])
        try:
            raws = []
            for entry, size in zip(header.input, server.sizes(name, version, header), strict=True):
                if len(body) < size:
                    text = f"unexpected size for input '{entry.name}', expecting {size - len(body)} bytes for model '{name}'"
                    raise Fault("INVALID_ARG", text)
                raws.append(body[:size])
                body = body[size:]
            if body:
                raise Fault("INVALID_ARG", f"unexpected additional input data for model '{name}'")
            result, parts = server.infer(name, version, header, raws)
        except Fault as fault:
            bare = message("InferResponseHeader", id=header.id)
            return answer(
                failed(status, fault), **{"NV-InferResponse": one_line(bare), "Content-Type": BINARY}
            )
        binary = request.query.get("format") == "binary"
        trailer = result.SerializeToString() if binary else text_format.MessageToString(result).encode()
        return answer(
            status,
            b"".join(parts) + trailer,
            **{"NV-InferResponse": one_line(result), "Content-Type": BINARY},
        )

    def told(request: web.Request, produce: Callable[[], Any]) -> web.Response:
        status = server.admit()
        try:
            result = produce()
        except Fault as fault:
            return answer(failed(status, fault))
        if request.query.get("format") == "binary":
            return answer(status, result.SerializeToString(), **{"Content-Type": BINARY})
        if request.query.get("format") == "json":
            text = json_format.MessageToJson(result, preserving_proto_field_name=True)
        else:
            text = text_format.MessageToString(result)
        return answer(status, text.encode())

    async def status_of(request: web.Request) -> web.Response:
        return told(request, lambda: server.status(request.match_info.get("model", "")))

    async def index(request: web.Request) -> web.Response:
        return told(request, server.index)

    async def health(request: web.Request) -> web.Response:
        return answer(server.admit())

    async def control(request: web.Request) -> web.Response:
        status = server.admit()
        try:
            server.control(request.match_info["kind"], request.match_info["model"])
        except Fault as fault:
            return answer(failed(status, fault))
        return answer(status)

    async def unknown(request: web.Request) -> web.Response:
        return web.Response(status=400)

    application = web.Application(client_max_size=1 << 30)
    add = application.router.add_route
    add("GET", "/api/health/{mode:live|ready}", health)
    for path in ("/api/status", "/api/status/", "/api/status/{model}"):
        add("GET", path, status_of)
    add("POST", "/api/infer/{model}", infer)
    add("POST", r"/api/infer/{model}/{version:\d+}", infer)
    add("POST", "/api/modelcontrol/{kind:load|unload}/{model}", control)
    add("GET", "/api/repository/index", index)
    add("*", "/{rest:.*}", unknown)
    return application


# ---- gRPC


class _Methods(grpc.GenericRpcHandler):
    """The service without generated stubs: methods by name."""

    def __init__(self, server: TrtisServer) -> None:
        self._server = server

    def service(self, details: Any) -> Any:
        name = details.method.removeprefix(SERVICE)
        if name == "StreamInfer":
            return grpc.stream_stream_rpc_method_handler(
                self._stream,
                lambda data: parse("InferRequest", data),
                lambda answer: answer.SerializeToString(),
            )
        method = getattr(self, f"_{name}", None)
        if method is None or not details.method.startswith(SERVICE):
            return None

        async def answer(request: Any, context: Any) -> Any:
            response = message(f"{name}Response")
            response.request_status.CopyFrom(self._server.admit())
            try:
                method(request, response)
            except Fault as fault:
                failed(response.request_status, fault)
            return response

        return grpc.unary_unary_rpc_method_handler(
            answer, lambda data: parse(f"{name}Request", data), lambda answer: answer.SerializeToString()
        )

    def _Status(self, request: Any, response: Any) -> None:
        response.server_status.CopyFrom(self._server.status(request.model_name))

    def _Health(self, request: Any, response: Any) -> None:
        response.health = self._server.health(request.mode)

    def _ModelControl(self, request: Any, response: Any) -> None:
        self._server.control("load" if request.type else "unload", request.model_name)

    def _Repository(self, request: Any, response: Any) -> None:
        if not request.index:
            raise Fault("UNKNOWN", "request type is not specified")
        response.index.CopyFrom(self._server.index())

    def _Infer(self, request: Any, response: Any) -> None:
        name, version, header = request.model_name, request.model_version, request.meta_data
        response.meta_data.id = header.id
        raws = list(request.raw_input)[: len(header.input)]
        sizes = self._server.sizes(name, version, header)
        if len(raws) < len(header.input):
            text = f"expected tensor data for at least {len(header.input)} inputs but got only {len(raws)}"
            raise Fault("INVALID_ARG", text)
        for entry, raw, size in zip(header.input, raws, sizes, strict=True):
            if len(raw) != size:
                text = f"unexpected size {len(raw)} for input '{entry.name}', expecting {size} for model '{name}'"
                raise Fault("INVALID_ARG", text)
        result, parts = self._server.infer(name, version, header, raws)
        response.meta_data.CopyFrom(result)
        response.raw_output.extend(parts)

    async def _stream(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            response = message("InferResponse")
            response.request_status.CopyFrom(self._server.admit())
            try:
                self._Infer(request, response)
            except Fault as fault:
                failed(response.request_status, fault)
            yield response


async def start_grpc(server: TrtisServer) -> tuple[grpc.aio.Server, int]:
    """Start on a free port of 127.0.0.1; returns the server and the port."""
    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    listening = grpc.aio.server(options=limits)
    listening.add_generic_rpc_handlers((_Methods(server),))
    port = listening.add_insecure_port("127.0.0.1:0")
    await listening.start()
    return listening, port
