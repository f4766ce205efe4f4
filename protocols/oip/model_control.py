"""The requests to load and to unload a model, over HTTP and gRPC.

Parameters of a load are ``config``, the model's configuration as JSON text, and ``file:<path>`` for each file
of the model, in base64 over HTTP; of an unload, ``unload_dependents``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import orjson

from interlingua.protocols.base64_text import decode_base64
from interlingua.protocols.json_document import LONG_BYTES, check_elements
from interlingua.protocols.oip.json_members import mapping
from interlingua.protocols.oip.message_from_json import read_message
from interlingua.protocols.oip.metadata_json import parse_object
from interlingua.protocols.wire import Buffer
from interlingua.schemas import InferenceError, ModelControl, invalid_tensor, malformed, offload
from interlingua.schemas.oip import MESSAGES

_FILE = "file:"
_DEPENDENTS = "unload_dependents"


def read_load_body(model: str, repository: str, body: Buffer) -> ModelControl:
    """The load in ``body``, which may be empty. Raises MALFORMED and INVALID_TENSOR naming the model, as on
    Triton, and the parameter."""
    parameters: dict[str, Any] = {}
    with _naming("load", model):
        for key, value in _body_parameters(body).items():
            if key.startswith(_FILE) and type(value) is str:
                try:
                    value = decode_base64(value)
                except ValueError as error:
                    raise malformed(f"parameter '{key}' is no base64: {error}") from error
            parameters[key] = value
        return _load(repository, parameters)


def read_load_message(model: str, repository: str, given: Mapping[str, Any]) -> ModelControl:
    """The load in a message's parameters. Raises as :func:`read_load_body`."""
    with _naming("load", model):
        return _load(repository, _message_parameters(given))


def read_unload_body(model: str, repository: str, body: Buffer) -> ModelControl:
    """The unload in ``body``, which may be empty. Raises as :func:`read_load_body`."""
    with _naming("unload", model):
        return _unload(repository, _body_parameters(body))


def read_unload_message(model: str, repository: str, given: Mapping[str, Any]) -> ModelControl:
    """The unload in a message's parameters. Raises as :func:`read_load_body`."""
    with _naming("unload", model):
        return _unload(repository, _message_parameters(given))


@contextmanager
def _naming(verb: str, model: str) -> Iterator[None]:
    try:
        yield
    except InferenceError as error:
        raise InferenceError(error.code, f"failed to {verb} '{model}', {error.message}") from error


def _body_parameters(body: Buffer) -> Mapping[str, Any]:
    return mapping(parse_object(body), "parameters") if body else {}


def _message_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in given.items():
        choice = value.WhichOneof("parameter_choice")
        found[key] = None if choice is None else getattr(value, choice)
    return found


def _load(repository: str, parameters: Mapping[str, Any]) -> ModelControl:
    config: bytes | None = None
    files: dict[str, bytes] = {}
    for key, value in parameters.items():
        if key == "config":
            if type(value) is not str:
                raise invalid_tensor("parameter 'config' must be a string")
            config = _config(value)
        elif key.startswith(_FILE):
            if type(value) is not bytes:
                raise invalid_tensor(f"parameter '{key}' must be the content of a file")
            files[key.removeprefix(_FILE)] = value
        else:
            raise invalid_tensor(
                f"a load has no parameter '{key[:40]}': there are 'config' and 'file:<path>'"
            )
    return ModelControl(repository, config, files)


def _config(text: str) -> bytes:
    """The configuration in JSON ``text``, serialized."""
    written = text.encode(errors="surrogatepass")
    if len(written) > LONG_BYTES:
        offload.call(check_elements, written, offload.KEY_WEIGHT)
    try:
        document = orjson.loads(written)
    except orjson.JSONDecodeError as error:
        raise malformed(f"parameter 'config' is not JSON: {error}") from error
    if type(document) is not dict:
        raise malformed("parameter 'config' is not a JSON object")
    try:
        read = read_message(document, MESSAGES["inference.ModelConfig"], strict=True)
    except InferenceError as error:
        raise malformed(f"parameter 'config': {error.message}") from error
    return read.SerializeToString()


def _unload(repository: str, parameters: Mapping[str, Any]) -> ModelControl:
    for key in parameters:
        if key != _DEPENDENTS:
            raise invalid_tensor(f"an unload has no parameter '{key[:40]}': there is '{_DEPENDENTS}'")
    dependents = parameters.get(_DEPENDENTS, False)
    if type(dependents) is not bool:
        raise invalid_tensor(f"parameter '{_DEPENDENTS}' must be a boolean")
    return ModelControl(repository, dependents=dependents)
