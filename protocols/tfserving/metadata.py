"""A model's signature as the dialect describes it, in messages and in JSON, both ways.

The original writes the names of members as in the contract, OpenVINO Model Server in camel case; both are
read. Maps keep the order in which they were written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from google.protobuf.message import DecodeError

from interlingua.protocols.protobuf_message import parse_bounded
from interlingua.protocols.protobuf_wire import LENGTH_DELIMITED, fields, join
from interlingua.protocols.tfserving.codec import (
    DATATYPE_NAMED,
    DATATYPE_OF,
    DEFAULT_SIGNATURE,
    NAME_OF,
    NUMBER_OF,
    PREDICT_METHOD,
    version_number,
)
from interlingua.protocols.tfserving.grpc_messages import message_of, spec_of, unwritable
from interlingua.protocols.wire import Buffer
from interlingua.schemas import (
    Leeway,
    ModelMetadata,
    Signature,
    TensorSpec,
    bad_upstream,
    malformed,
)
from interlingua.schemas.tfserving import MESSAGES

SIGNATURE_DEF = "signature_def"
"""The name of the only metadata."""

_MAP_TYPE = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
_SIGNATURES: int = message_of("SignatureDefMap").SIGNATURE_DEF_FIELD_NUMBER
_SIGNATURE: Any = MESSAGES["tensorflow.SignatureDef"]
_RESPONSE: Any = message_of("GetModelMetadataResponse")
_INFO: Any = MESSAGES["tensorflow.TensorInfo"]

_SIDES = ("inputs", "outputs")
_KEY, _VALUE = 1, 2
_CAMEL = {"model_spec": "modelSpec", "signature_def": "signatureDef", "tensor_shape": "tensorShape",
          "unknown_rank": "unknownRank", "version_label": "versionLabel"}  # fmt: skip


def version_described(metadata: ModelMetadata, requested: str) -> str:
    """The version that the metadata are about: the requested one, or the latest."""
    if requested:
        return requested
    numbers = [number for number in map(version_number, metadata.versions) if number is not None]
    return str(max(numbers)) if numbers else ""


# --- messages


def write_metadata(metadata: ModelMetadata, version: str) -> bytes:
    """A ``GetModelMetadataResponse``. Raises UNREPRESENTABLE."""
    try:
        pieces = [_SIGNATURE(method_name=PREDICT_METHOD).SerializeToString()]
        for side, specs in zip(_SIDES, (metadata.signature.inputs, metadata.signature.outputs), strict=True):
            for spec in specs:
                # one by one: the entries of a map have no order
                one = _SIGNATURE()
                _fill(getattr(one, side)[spec.name], spec)
                pieces.append(one.SerializeToString())
    except ValueError as error:
        raise unwritable(error) from error
    entry = join(join(b"", _KEY, [DEFAULT_SIGNATURE.encode()]), _VALUE, [b"".join(pieces)])
    response = _RESPONSE(model_spec=spec_of(metadata.name, version))
    described = response.metadata[SIGNATURE_DEF]
    described.type_url, described.value = _MAP_TYPE, join(b"", _SIGNATURES, [entry])
    return bytes(response.SerializeToString())


def _fill(info: Any, spec: TensorSpec) -> None:
    info.name = f"{spec.name}:0"
    info.dtype = NUMBER_OF[spec.datatype]
    info.tensor_shape.SetInParent()
    for side in spec.shape:
        info.tensor_shape.dim.add(size=side)


def read_metadata(model: str, message: Buffer) -> ModelMetadata:
    """The metadata in a ``GetModelMetadataResponse``. Raises MALFORMED."""
    response = parse_bounded(_RESPONSE, message)
    if SIGNATURE_DEF not in response.metadata:
        raise malformed(f"the metadata have no '{SIGNATURE_DEF}'")
    try:
        signatures = dict(_entries(response.metadata[SIGNATURE_DEF].value, _SIGNATURES))
        chosen = _chosen(signatures)
        sides = [[_read_info(*entry) for entry in _entries(chosen, number)] for number in (1, 2)]
    except (DecodeError, UnicodeDecodeError) as error:
        raise malformed(f"unable to parse SignatureDefMap: {error}") from None
    return _metadata(response.model_spec.name or model, sides)


def _entries(message: Any, field: int) -> Iterator[tuple[str, memoryview]]:
    """The entries of a map of messages, in order."""
    for number, kind, entry in fields(message):
        if number == field and kind == LENGTH_DELIMITED and not isinstance(entry, int):
            parts = {place: part for place, _, part in fields(entry) if not isinstance(part, int)}
            yield str(parts.get(_KEY, b""), "utf-8"), parts.get(_VALUE, memoryview(b""))


def _read_info(name: str, message: memoryview) -> tuple[TensorSpec, bool]:
    info = parse_bounded(_INFO, message)
    datatype = DATATYPE_OF.get(info.dtype)
    if datatype is None:
        raise bad_upstream(f"tensor '{name}' has the datatype {info.dtype}, which is not supported")
    shape = tuple(dim.size for dim in info.tensor_shape.dim)
    return TensorSpec(name, datatype, shape), info.tensor_shape.unknown_rank


# --- JSON


def metadata_document(metadata: ModelMetadata, version: str) -> dict[str, Any]:
    """The document of a model's metadata. As in protobuf's JSON, 64-bit integers are strings."""
    spec: dict[str, Any] = {"name": metadata.name, "signature_name": ""}
    if version_number(version) is not None:
        spec["version"] = version
    elif version:
        spec["version_label"] = version
    signature = metadata.signature
    described = {
        "inputs": {each.name: _info(each) for each in signature.inputs},
        "outputs": {each.name: _info(each) for each in signature.outputs},
        "method_name": PREDICT_METHOD,
    }
    return {"model_spec": spec, "metadata": {SIGNATURE_DEF: {SIGNATURE_DEF: {DEFAULT_SIGNATURE: described}}}}


def _info(spec: TensorSpec) -> dict[str, Any]:
    dims = [{"size": str(side), "name": ""} for side in spec.shape]
    return {
        "dtype": NAME_OF[spec.datatype],
        "tensor_shape": {"dim": dims, "unknown_rank": False},
        "name": f"{spec.name}:0",
    }


def read_document(model: str, document: Mapping[str, Any]) -> ModelMetadata:
    """The metadata in a document of any server. Raises MALFORMED."""
    try:
        spec = _member(document, "model_spec", {})
        signatures = _member(_member(document["metadata"], "signature_def"), "signature_def")
        chosen = _chosen(signatures)
        sides = [
            [_read_described(name, info) for name, info in chosen.get(side, {}).items()] for side in _SIDES
        ]
        name = spec.get("name") or model
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise malformed(f"the metadata are not those of a model: {error!r}") from None
    return _metadata(name, sides)


def _read_described(name: str, info: Mapping[str, Any]) -> tuple[TensorSpec, bool]:
    datatype = DATATYPE_NAMED.get(info["dtype"])
    if datatype is None:
        raise bad_upstream(f"tensor '{name}' has the datatype {info['dtype']}, which is not supported")
    shape = _member(info, "tensor_shape", {})
    sides = tuple(int(dim.get("size", 0)) for dim in shape.get("dim") or ())
    return TensorSpec(name, datatype, sides), _member(shape, "unknown_rank", False) is True


def _member(document: Mapping[str, Any], name: str, *default: Any) -> Any:
    """The member ``name``, in either spelling. Raises ``LookupError``."""
    for spelling in (name, _CAMEL[name]):
        if spelling in document:
            return document[spelling]
    if default:
        return default[0]
    raise LookupError(name)


# --- both


def _chosen(signatures: Mapping[str, Any]) -> Any:
    """The default signature, or the only one. Raises MALFORMED."""
    if DEFAULT_SIGNATURE in signatures:
        return signatures[DEFAULT_SIGNATURE]
    named = [name for name in signatures if not name.startswith("__")]  # that of initialization
    if len(named) != 1:
        raise malformed(f"the model has no signature '{DEFAULT_SIGNATURE}'")
    return signatures[named[0]]


def _metadata(name: str, sides: Iterable[Iterable[tuple[TensorSpec, bool]]]) -> ModelMetadata:
    inputs, outputs = (tuple(side) for side in sides)
    free = frozenset(spec.name for spec, unknown in inputs if unknown)
    signature = Signature(tuple(spec for spec, _ in inputs), tuple(spec for spec, _ in outputs))
    # the one version is not the list of all that are ready
    return ModelMetadata(name, signature, leeway=Leeway(shapes=free))
