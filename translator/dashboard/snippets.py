"""The same request for other programs: curl, Python, and ``interlingua infer``. What curl and Python send are
the same bytes."""

from __future__ import annotations

import base64
import shlex
from typing import Any

import orjson

from interlingua.protocols.dialect import Binding
from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.wire import GrpcRequest, HttpCall
from interlingua.schemas import Datatype, InferRequest, Tensor
from interlingua.translator.conversion import raw

_MAX_BYTES = 4096
"""The longest message in a snippet; a longer one is in a file."""

_MAX_ELEMENTS = 64

FILE = "request.bin"


def snippets(
    address: str, binding: Binding, call: raw.Call, request: InferRequest, tls: bool
) -> dict[str, Any]:
    """By program; with the message as ``file`` (base64) if it is too long for them."""
    message = _message(binding, call)
    encoded = base64.b64encode(message).decode()
    inline = len(message) <= _MAX_BYTES
    found = {
        "curl": _curl(address, call, message if inline else None, tls)
        if isinstance(call, HttpCall)
        else f"# curl does not speak {binding.transport}",
        "python": _python(address, call, f'base64.b64decode("{encoded}")' if inline else _READ, tls),
        "infer": _infer(address, binding, request, tls),
    }
    return found if inline else {**found, "file": encoded}


_READ = f'open("{FILE}", "rb").read()'


def _message(binding: Binding, call: raw.Call) -> bytes:
    """What follows the head of the transport."""
    if isinstance(call, HttpCall):
        return b"".join(map(bytes, call.parts))
    if isinstance(call, GrpcRequest):
        return bytes(call.whole)
    return raw.FORMS[binding.transport].write(call)


def _url(address: str, call: HttpCall, tls: bool) -> str:
    host = "localhost" if address.startswith("unix:") else address
    target = f"{call.path}?{call.query}" if call.query else call.path
    return f"{'https' if tls else 'http'}://{host}{target}"


def _curl(address: str, call: HttpCall, message: bytes | None, tls: bool) -> str:
    words = ["curl", "--silent", "--request", call.method]
    if address.startswith("unix:"):
        words += ["--unix-socket", address.removeprefix("unix:")]
    for name, value in call.headers.items():
        words += ["--header", f"{name}: {value}"]
    words.append(_url(address, call, tls))
    command, before = shlex.join(words), ""
    if message is None:
        return f"{command} --data-binary @{FILE}"
    text = _text(message)
    if text is not None:
        return f"{command} --data-raw {shlex.quote(text)}"
    before = f"echo {base64.b64encode(message).decode()} | base64 --decode | "
    return f"{before}{command} --data-binary @-"


def _text(message: bytes) -> str | None:
    try:
        text = message.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _python(address: str, call: raw.Call, message: str, tls: bool) -> str:
    lines = ["import base64", f"message = {message}"] if "base64" in message else [f"message = {message}"]
    if isinstance(call, HttpCall) and address.startswith("unix:"):
        return "# urllib does not connect to unix sockets: see curl\n"
    if isinstance(call, HttpCall):
        lines += [
            "import urllib.request",
            f"url = {_url(address, call, tls)!r}",
            f"request = urllib.request.Request(url, message, {dict(call.headers)!r}, method={call.method!r})",
            "print(urllib.request.urlopen(request).read())",
        ]
    elif isinstance(call, GrpcRequest):
        channel = "secure_channel({!r}, grpc.ssl_channel_credentials())" if tls else "insecure_channel({!r})"
        lines += [
            "import grpc",
            f"with grpc.{channel.format(address)} as channel:",
            f"    print(channel.unary_unary({call.method!r})(message))",
        ]
    else:
        place = parse_address(address)
        connect = (
            f"socket.create_connection(({place.host!r}, {place.port}))"
            if not address.startswith("unix:")
            else "socket.socket(socket.AF_UNIX)"
        )
        lines += ["import socket", f"connection = {connect}"]
        if address.startswith("unix:"):
            lines.append(f"connection.connect({address.removeprefix('unix:')!r})")
        lines += ["connection.sendall(message)", "print(connection.recv(1 << 20))"]
    return "\n".join(lines) + "\n"


def _infer(address: str, binding: Binding, request: InferRequest, tls: bool) -> str:
    url = f"https://{address}" if tls else address
    words = ["interlingua", "infer", "--dialect", binding.dialect, "--transport", binding.transport]
    words += ["--url", url, "--model", request.model]
    if request.version:
        words += ["--version", request.version]
    for tensor in request.inputs:
        words += ["--input", f"{tensor.name}={_value(tensor)}"]
    return shlex.join(words)


def _value(tensor: Tensor) -> str:
    array = tensor.numpy()
    if array.size > _MAX_ELEMENTS:
        return f"@{tensor.name or 'input'}.npy"
    if tensor.datatype is Datatype.BYTES:
        array = array.astype(object)
        array.flat[:] = [each.decode(errors="replace") for each in tensor.elements()]
    elif tensor.datatype.dtype.kind in "fV":
        array = array.astype("f8")
    return orjson.dumps(array.tolist()).decode()
