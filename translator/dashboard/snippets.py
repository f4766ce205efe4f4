"""The same request for other programs: curl, Python, and ``interlingua infer``. Curl and Python
send the same bytes."""

from __future__ import annotations

import base64
import io
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from interlingua.protocols.dialect import Binding
from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.wire import GrpcRequest, HttpCall
from interlingua.schemas import Datatype, InferRequest, Signature, Tensor
from interlingua.translator.cli.arguments import RefusedError
from interlingua.translator.cli.values import storable
from interlingua.translator.conversion import raw

_MAX_BYTES = 4096
"""The longest message in a snippet; a longer one is in a file."""

_MAX_ELEMENTS = 64

_UNSAFE = re.compile(r"[^\w.-]+")

FILE, SIGNATURE = "request.bin", "signature.yaml"


TOKEN = "$TOKEN"  # noqa: S105
"""Takes the place of a secret in headers: a variable of the shell, in Python of the environment."""


@dataclass(frozen=True, slots=True)
class SnippetAddress:
    """The ``address`` of a listener, whether it has ``tls``, and the headers that it requires."""

    address: str
    tls: bool = False
    credentials: Mapping[str, str] = field(default_factory=dict)


def snippets(
    at: SnippetAddress, binding: Binding, call: raw.Call, request: InferRequest, signature: Signature
) -> dict[str, Any]:
    """By program; with the message as ``file`` (base64) if it is too long for them."""
    message = _message(binding, call)
    encoded = base64.b64encode(message).decode()
    inline = len(message) <= _MAX_BYTES
    found = {
        "curl": _curl(at, call, message if inline else None)
        if isinstance(call, HttpCall)
        else f"# curl does not speak {binding.transport}",
        "python": _python(at, call, f'base64.b64decode("{encoded}")' if inline else _READ),
        "infer": _infer(at, binding, request, signature),
    }
    arrays = dict(_arrays(request.inputs))
    return {**found, "arrays": arrays} if inline else {**found, "arrays": arrays, "file": encoded}


_READ = f'open("{FILE}", "rb").read()'


def _message(binding: Binding, call: raw.Call) -> bytes:
    """What follows the head of the transport."""
    if isinstance(call, HttpCall):
        return b"".join(map(bytes, call.parts))
    if isinstance(call, GrpcRequest):
        return bytes(call.whole)
    return raw.FORMS[binding.transport].write(call)


def _url(at: SnippetAddress, call: HttpCall) -> str:
    host = "localhost" if at.address.startswith("unix:") else at.address
    target = f"{call.path}?{call.query}" if call.query else call.path
    return f"{'https' if at.tls else 'http'}://{host}{target}"


def _headers(at: SnippetAddress) -> str:
    """As options of a command: in double quotes the shell expands the placeholder."""
    return "".join(f' --header "{name}: {value}"' for name, value in at.credentials.items())


def _curl(at: SnippetAddress, call: HttpCall, message: bytes | None) -> str:
    words = ["curl", "--silent", "--request", call.method]
    if at.address.startswith("unix:"):
        words += ["--unix-socket", at.address.removeprefix("unix:")]
    for name, value in call.headers.items():
        words += ["--header", f"{name}: {value}"]
    words.append(_url(at, call))
    command = shlex.join(words) + _headers(at)
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


def _python(at: SnippetAddress, call: raw.Call, message: str) -> str:
    lines = ["import base64", f"message = {message}"] if "base64" in message else [f"message = {message}"]
    stated = [f"{name!r}: {_expanded(value)}" for name, value in at.credentials.items()]
    if isinstance(call, HttpCall) and at.address.startswith("unix:"):
        return "# urllib does not connect to unix sockets: see curl\n"
    if isinstance(call, HttpCall):
        headers = ", ".join([*(f"{name!r}: {value!r}" for name, value in call.headers.items()), *stated])
        lines += [
            "import urllib.request",
            f"url = {_url(at, call)!r}",
            f"request = urllib.request.Request(url, message, {{{headers}}}, method={call.method!r})",
            "print(urllib.request.urlopen(request).read())",
        ]
    elif isinstance(call, GrpcRequest):
        secure = ", grpc.ssl_channel_credentials()" if at.tls else ""
        channel = f"{'secure' if at.tls else 'insecure'}_channel({at.address!r}{secure})"
        metadata = f", metadata={{{', '.join(stated)}}}.items()" if stated else ""
        lines += [
            "import grpc",
            f"with grpc.{channel} as channel:",
            f"    print(channel.unary_unary({call.method!r})(message{metadata}))",
        ]
    else:
        lines += _over_a_socket(at)
    if stated and isinstance(call, HttpCall | GrpcRequest):
        lines.insert(0, "import os")
    return "\n".join(lines) + "\n"


def _over_a_socket(at: SnippetAddress) -> list[str]:
    unix = at.address.startswith("unix:")
    lines = ["# it lacks the credentials, which are a part of the message"] if at.credentials else []
    lines.append("import socket")
    if unix:
        lines.append("connection = socket.socket(socket.AF_UNIX)")
        lines.append(f"connection.connect({at.address.removeprefix('unix:')!r})")
    else:
        place = parse_address(at.address)
        lines.append(f"connection = socket.create_connection(({place.host!r}, {place.port}))")
    return [*lines, "connection.sendall(message)", "print(connection.recv(1 << 20))"]


def _expanded(value: str) -> str:
    """Python for a header with the placeholder."""
    before, _, _ = value.partition(TOKEN)
    variable = f'os.environ["{TOKEN[1:]}"]'
    return f"{before!r} + {variable}" if before else variable


def _infer(at: SnippetAddress, binding: Binding, request: InferRequest, signature: Signature) -> str:
    # other transports have no scheme of TLS: authorities turn it on
    secure = at.tls and binding.transport == "http"
    url = f"https://{at.address}" if secure else at.address
    words = ["interlingua", "infer", "--dialect", binding.dialect, "--transport", binding.transport]
    words += ["--url", url, "--model", request.model if binding.capability.many_models else ""]
    if request.version:
        words += ["--version", request.version]
    for tensor in request.inputs:
        words += ["--input", f"{tensor.name}={_value(tensor)}"]
    command = shlex.join(words) + _headers(at) + (' --ca "$CA"' if at.tls and not secure else "")
    if binding.capability.signatures:
        return command
    # the dialect has no metadata, from which the command takes datatypes
    return f"echo {shlex.quote(_stated(signature))} > {SIGNATURE}\n{command} --signature {SIGNATURE}"


def _stated(signature: Signature) -> str:
    """The file of a signature on one line: JSON is YAML."""
    sides = {
        side: [{"name": each.name, "datatype": each.datatype.value, "shape": each.shape} for each in specs]
        for side, specs in (("inputs", signature.inputs), ("outputs", signature.outputs))
    }
    return orjson.dumps(sides).decode()


def _file(tensor: Tensor) -> str:
    """A name for a file with ``tensor``: names of inputs may contain anything."""
    return f"{_UNSAFE.sub('_', tensor.name) or 'input'}.npy"


def _arrays(inputs: Iterable[Tensor]) -> Iterator[tuple[str, str]]:
    """The files of long inputs, in base64; none for one that NumPy's format would change."""
    for tensor in inputs:
        if tensor.count > _MAX_ELEMENTS:
            with suppress(RefusedError):
                np.lib.format.write_array(file := io.BytesIO(), storable(tensor), allow_pickle=False)
                yield _file(tensor), base64.b64encode(file.getvalue()).decode()


def _value(tensor: Tensor) -> str:
    array = tensor.numpy()
    if array.size > _MAX_ELEMENTS:
        return f"@{_file(tensor)}"
    if tensor.datatype is Datatype.BYTES:
        array = array.astype(object)
        array.flat[:] = [each.decode(errors="replace") for each in tensor.elements()]
    elif tensor.datatype.dtype.kind in "fV":
        array = array.astype("f8")
    return orjson.dumps(array.tolist()).decode()
