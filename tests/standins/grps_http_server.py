"""The HTTP side of the grps stand-in, on plain aiohttp and json, by the facts of the Python server (``py``) and of
the C++ server (``cpp``): which bodies each takes, where each puts a status.

What neither takes is refused here too, exactly: the Content-Type with a parameter, camelCase, numbers as
text where there are none, NaN as a bare token. The C++ server takes the quoted words NaN, Infinity and
-Infinity, in any case, where a float is meant, and no other text there.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import numpy as np
from aiohttp import web
from google.protobuf import json_format

from tests.standins.grps_contract import DTYPES, GrpsMessage, array_of, gtensors, to_json
from tests.standins.grps_server import Fault, GrpsServer

JSON = {"py": "application/json;charset=utf-8", "cpp": "application/json"}
OCTETS = "application/octet-stream"
FLOAT32 = 7
NOT_FINITE = {"nan": "NaN", "infinity": "Infinity", "-infinity": "-Infinity"}
NO_NDARRAY = {
    "py": "No float32 tensors in output. Cannot convert to ndarray.",
    "cpp": "No tensors in output. Cannot convert to ndarray.",
}


@dataclass
class Posted:
    """A request for an inference as it arrived."""

    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


def grps_http_server(
    server: GrpsServer, posted: list[Posted] | None = None, *, recut: int = 0
) -> web.Application:
    """``server`` over HTTP. ``posted`` collects the requests for inference; with ``recut`` a stream is cut into
    chunks of so many bytes, as a proxy in between may do it."""
    flavor = server.flavor

    def reply(message: Any) -> web.Response:
        code = message.status.code if flavor == "py" else 200
        body = to_json(message, flavor)
        if message.WhichOneof("data_oneof") == "bin_data" and (message.bin_data or flavor == "cpp"):
            return whole(200, OCTETS, message.bin_data)
        return whole(code, JSON[flavor], body)

    def whole(status: int, content_type: str, body: bytes) -> web.Response:
        answer = web.Response(
            status=status,
            reason=HTTPStatus(status).phrase.upper(),
            body=body,
            headers={"Content-Type": content_type},
        )
        if flavor == "py":
            answer.force_close()
        return answer

    async def predict(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if posted is not None:
            posted.append(Posted(request.path, request.query_string, request.headers, body))
        streaming = request.query.get("streaming", "").lower() == "true"
        returning = request.query.get("return-ndarray", "").lower() == "true"
        try:
            message = read_body(request.headers.get("Content-Type"), body, flavor)
        except Fault as fault:
            return reply(server.failed(fault))
        message.model = message.model or request.query.get("model", "")
        if streaming:
            return await stream(request, message)
        answer = server.predict(message)
        if returning and answer.status.code == 200:
            return returned(answer)
        return reply(answer)

    def returned(answer: Any) -> web.Response:
        tensors = answer.gtensors.tensors
        if not tensors or tensors[0].dtype != FLOAT32 or (flavor == "cpp" and len(tensors) > 1):
            return reply(server.failed(Fault(500, NO_NDARRAY[flavor])))
        members = json.loads(to_json(GrpsMessage(status=answer.status), flavor))
        if flavor == "py":
            members["model"] = answer.model
        members["ndarray"] = array_of(tensors[0]).tolist()
        return whole(200, JSON[flavor], json.dumps(members).encode())

    async def stream(request: web.Request, message: Any) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": OCTETS})
        answer.enable_chunked_encoding()
        await answer.prepare(request)
        # the Python server writes the text of a bytes object, b'\\x00' say
        octets = repr if flavor == "py" else bytes
        pieces = [
            _encoded(octets(piece.bin_data))
            if piece.WhichOneof("data_oneof") == "bin_data"
            else to_json(piece, flavor, stream=True)
            for piece in server.stream(message)
        ]
        if recut:
            text = b"".join(pieces)
            pieces = [text[start : start + recut] for start in range(0, len(text), recut)]
        for each in pieces:
            await answer.write(each)
        await answer.write_eof()
        return answer

    def health(what: str) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            return reply(server.health("http", what))

        return answer

    async def server_metadata(request: web.Request) -> web.Response:
        return reply(server.server_metadata("http"))

    async def model_metadata(request: web.Request) -> web.Response:
        body = await request.read()
        if flavor == "py" and not request.headers.get("Content-Type", "").startswith("application/json"):
            return whole(415, "text/html; charset=utf-8", b"<!doctype html>")
        return reply(server.model_metadata(GrpsMessage(str_data=json.loads(body).get("str_data", ""))))

    async def unknown(request: web.Request) -> web.Response:
        if flavor == "py":
            return whole(404, "text/html; charset=utf-8", b"<!doctype html>\n<title>404 Not Found</title>")
        words = f"[5AB9E3C915AF1C82313966C120597C9D][E1002]Fail to find method on `{request.path}'"
        answer = whole(404, "text/plain", words.encode())
        answer.headers["x-bd-error-code"] = "1002"
        return answer

    application = web.Application(client_max_size=1 << 30)
    add = application.router.add_route
    anyhow = "*" if flavor == "cpp" else "POST"
    for what in ("live", "ready", "online", "offline"):
        add("*", f"/grps/v1/health/{what}", health(what))
    add(anyhow, "/grps/v1/infer/predict", predict)
    add("*", "/grps/v1/metadata/server", server_metadata)
    add(anyhow, "/grps/v1/metadata/model", model_metadata)
    add("*", "/{rest:.*}", unknown)
    return application


def read_body(content_type: str | None, body: bytes, flavor: str) -> Any:
    """The message in a body of that type. Raises ``Fault`` with the flavor's words."""
    if content_type == OCTETS:
        if not body and flavor == "py":
            raise Fault(400, "The http body is empty.")
        return GrpsMessage(bin_data=body)
    if content_type != "application/json":
        words = {"py": "Unsupported content type.", "cpp": "Bad Request, err: Content type is not supported."}
        raise Fault(400, words[flavor])
    if not body and flavor == "py":
        raise Fault(400, "The http body is empty.")
    try:
        document = json.loads(body, parse_constant=_refuse_token)
        if not isinstance(document, dict):
            raise ValueError("the body is not an object")
    except ValueError as error:
        bad = Fault(400, "Bad Request, err: Parse json failed.")
        raise (bad if flavor == "cpp" else Fault(500, f"json.decoder.JSONDecodeError: {error}")) from error
    given = document.keys() if flavor == "cpp" else {key for key, value in document.items() if value}
    if not given.isdisjoint({"str_data", "gtensors", "gmap"}):
        try:
            _check_datatypes(document)
            if flavor == "cpp":
                _check_strictly(document)
            return json_format.ParseDict(document, GrpsMessage(), ignore_unknown_fields=True)
        except (json_format.ParseError, ValueError) as error:
            words = f"Bad Request, err: {error}"
            raise (Fault(400, words) if flavor == "cpp" else Fault(500, f"ParseError: {error}")) from error
    if "ndarray" in given:
        try:
            nested = np.array(document["ndarray"])
            if nested.dtype.kind not in "iuf":
                raise ValueError("NDArray some array is not a number or array.")
        except (ValueError, TypeError) as error:
            words = "Bad Request, err: Parse NDArray failed: NDArray some array size not match."
            raise (Fault(400, words) if flavor == "cpp" else Fault(500, f"ValueError: {error}")) from error
        message = gtensors(document.get("model", ""), unnamed=nested.astype(np.float32))
        message.gtensors.tensors[0].ClearField("name")
        return message
    if flavor == "py":
        raise Fault(500, "No legal field in json.")
    raise Fault(400, "Bad Request, err: Have no legal member in json body.")


def _encoded(piece: str | bytes) -> bytes:
    return piece.encode() if isinstance(piece, str) else piece


def _refuse_token(token: str) -> None:
    raise ValueError(f"the token {token}")


def _check_datatypes(document: dict[str, Any]) -> None:
    """The names of datatypes are exact; protobuf's reader here would pass over one that it does not know."""
    for tensor in (document.get("gtensors") or {}).get("tensors", ()):
        given = tensor.get("dtype", 0)
        if isinstance(given, str) and given != "DT_INVALID" and given not in DTYPES and not given.isdigit():
            raise ValueError(f"Invalid enum value {given}")


def _check_strictly(document: dict[str, Any]) -> None:
    """The C++ server takes numbers as numbers, 64 bits as text too, and knows no camelCase. Not-finite floats
    are left in the spelling of protobuf's reader here, which alone knows them."""
    for tensor in document.get("gtensors", {}).get("tensors", ()):
        for key, values in tensor.items():
            if not key.startswith("flat_") or key in ("flat_string", "flat_int64"):
                continue
            if "float" in key:
                tensor[key] = values = [_finite_or_named(value) for value in values]
            kinds = (int, float, _Named) if "float" in key else int
            if any(isinstance(value, bool) or not isinstance(value, kinds) for value in values):
                raise ValueError(f"Invalid value `{values[:3]}' for optional field `GenericTensor.{key}'")
        if any(key != key.lower() for key in tensor):
            raise ValueError("camelCase would be lost")


class _Named(str):
    """The word of a float that is not finite."""


def _finite_or_named(value: Any) -> Any:
    return _Named(NOT_FINITE[value.lower()]) if str(value).lower() in NOT_FINITE else value
