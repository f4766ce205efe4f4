"""Metadata and errors in JSON. Null and absent members are the same, because KServe writes the one for the
other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from interlingua.protocols.json_document import parse_plain
from interlingua.protocols.oip.json_members import mapping, members, tensor_head, text
from interlingua.protocols.oip.message_from_json import read_message
from interlingua.protocols.oip.platforms import listed_platform
from interlingua.protocols.wire import Buffer
from interlingua.schemas import (
    InferenceError,
    ModelMetadata,
    Parameter,
    ServerMetadata,
    Signature,
    TensorSpec,
    malformed,
)
from interlingua.schemas.oip import MESSAGES

_LONGEST_TEXT = 2000
"""The limit of an upstream's plain-text error, in characters."""


def parse_object(body: Buffer) -> dict[str, Any]:
    """The JSON object in ``body``. Raises MALFORMED."""
    document = parse_plain(body)
    if type(document) is not dict:
        raise malformed("the JSON body is not an object")
    return document


def write_server_metadata(metadata: ServerMetadata) -> dict[str, Any]:
    """A server's metadata as JSON."""
    return {"name": metadata.name, "version": metadata.version, "extensions": metadata.extensions}


def read_server_metadata(document: Mapping[str, Any]) -> ServerMetadata:
    """A server's metadata from JSON. Raises MALFORMED."""
    extensions = _texts(document, "extensions")
    return ServerMetadata(text(document, "name"), text(document, "version"), extensions)


def write_model_metadata(metadata: ModelMetadata) -> dict[str, Any]:
    """A model's metadata as JSON, without labels and the batch limit, and without empty parameters."""
    return {
        "name": metadata.name,
        "versions": metadata.versions,
        "platform": listed_platform(metadata.platform),
        "inputs": _write_specs(metadata.signature.inputs),
        "outputs": _write_specs(metadata.signature.outputs),
        **_written(metadata.parameters),
    }


def read_model_metadata(document: Mapping[str, Any]) -> ModelMetadata:
    """A model's metadata from JSON; free dimensions are -1, the batch limit is unknown (0). Raises MALFORMED,
    and INVALID_TENSOR for an unknown datatype."""
    return ModelMetadata(
        name=text(document, "name"),
        signature=Signature(_read_specs(document, "inputs"), _read_specs(document, "outputs")),
        versions=_texts(document, "versions"),
        platform=text(document, "platform"),
        parameters=_read_parameters(document),
    )


def read_model_config(document: dict[str, Any]) -> bytes:
    """A model's configuration from JSON, as a serialized ``inference.ModelConfig`` without unknown members.
    Raises MALFORMED."""
    return read_message(document, MESSAGES["inference.ModelConfig"]).SerializeToString()


def read_error(status: int, body: Buffer) -> str:
    """A server's own words for a failure: ``error`` (all), ``detail`` (MLServer and KServe for a failed
    validation or an unknown path), or plain text (MLServer for an unexpected error)."""
    try:
        document = parse_object(body)
    except InferenceError:
        words = bytes(body).decode(errors="replace")[:_LONGEST_TEXT].strip()
    else:
        error = document.get("error")
        words = error if isinstance(error, str) else _detail(document.get("detail"))
    return words or f"the upstream answered HTTP status {status} and no reason"


def _detail(detail: Any) -> str:
    if isinstance(detail, str):
        return detail
    if not isinstance(detail, list):
        return ""
    return "; ".join(_fault(fault) for fault in detail if isinstance(fault, dict))


def _fault(fault: Mapping[str, Any]) -> str:
    """One error of a validation: place and message."""
    place, words = fault.get("loc"), fault.get("msg", "")
    return f"{'.'.join(map(str, place))}: {words}" if isinstance(place, list) else str(words)


def _write_specs(specs: Iterable[TensorSpec]) -> list[dict[str, Any]]:
    return [
        {"name": spec.name, "datatype": spec.datatype.value, "shape": spec.shape, **_written(spec.parameters)}
        for spec in specs
    ]


def _written(parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    # without NaN and infinity, which have no form in JSON
    kept = {key: value for key, value in parameters.items() if isinstance(value, str) or isfinite(value)}
    return {"parameters": kept} if kept else {}


def _read_parameters(entry: Mapping[str, Any]) -> dict[str, Parameter]:
    """Single values; nested ones of other servers are dropped."""
    return {key: value for key, value in mapping(entry, "parameters").items() if isinstance(value, Parameter)}


def _read_specs(document: Mapping[str, Any], key: str) -> tuple[TensorSpec, ...]:
    if document.get(key) is None:
        return ()
    return tuple(
        TensorSpec(*tensor_head(entry, key, index, lowest=-1), parameters=_read_parameters(entry))
        for index, entry in enumerate(members(document, key))
    )


def _texts(document: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values: Sequence[Any] | None = document.get(key)
    if values is None:
        return ()
    if type(values) is not list or not all(type(value) is str for value in values):
        raise malformed(f"'{key}' must be an array of strings")
    return tuple(values)
