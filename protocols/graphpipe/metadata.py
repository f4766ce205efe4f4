"""A model's metadata: as a ``MetadataResponse``, as JSON, and in the IR.

A ``Description`` has the wire's own terms. Its signature may fail: some servers report tensors without a
type.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from interlingua.protocols.graphpipe import reader, writer
from interlingua.protocols.graphpipe.codec import WRITTEN_TYPES, says_nothing
from interlingua.protocols.wire import Buffer
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    Leeway,
    ModelMetadata,
    ServerMetadata,
    Signature,
    TensorSpec,
)
from interlingua.schemas.graphpipe import NULL, TYPES

SERVER = "interlingua"
"""The ``server`` where it is not known."""

_DATATYPES: dict[int, Datatype] = {code: datatype for datatype, code in TYPES.items()}


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output. An empty ``shape`` is a scalar's or unknown. ``type`` is the number in the schema,
    Null for a datatype that GraphPipe cannot carry."""

    name: str
    description: str
    shape: tuple[int, ...]
    type: int


@dataclass(frozen=True, slots=True)
class Description:
    """A model; ``server`` is the software that serves it, and ``version`` that of the software."""

    name: str
    version: str
    server: str
    description: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def describe(metadata: ModelMetadata, version: str = "") -> Description:
    """``metadata`` in GraphPipe's terms. The description ends with the platform and the version, requested or
    last, for which there are no fields."""
    server = metadata.server
    version = version or (metadata.versions[-1] if metadata.versions else "")
    facts = [f"platform {metadata.platform}"] if metadata.platform else []
    facts += [f"version {version}"] if version else []
    return Description(
        metadata.name,
        server.version if server is not None else "",
        server.name if server is not None else SERVER,
        "; ".join(filter(None, (metadata.description, ", ".join(facts)))),
        _ports(metadata.signature.inputs),
        _ports(metadata.signature.outputs),
    )


def model_metadata(description: Description, name: str) -> ModelMetadata:
    """``description`` in the IR's terms; ``name`` is for a server that reports none. The platform is the
    server; the version is not the model's.

    The first dimension of shapes stays open: it is the batch, which many servers report as 1. In a report of
    the simple API of graphpipe-go only the names are right. An input that is also an output is optional,
    because graphpipe-tf lists every tensor of its graph as both. Raises UNSUPPORTED if a type is Null or
    unknown: such a model needs a declared signature.
    """
    inputs, outputs = _specs(description.inputs), _specs(description.outputs)
    given = {spec.name for spec in outputs}
    signature = Signature(tuple(replace(spec, optional=spec.name in given) for spec in inputs), outputs)
    wrong = says_nothing(signature)
    shapes = frozenset(signature.input_names) if wrong else frozenset[str]()
    return ModelMetadata(
        name=description.name or name,
        signature=signature,
        platform=description.server,
        description=description.description,
        leeway=Leeway(datatypes=wrong, batches=True, shapes=shapes),
        server=ServerMetadata(description.server, description.version),
    )


def encode_metadata(description: Description, *, prefixed: bool = False) -> bytes:
    """A ``MetadataResponse``, ``prefixed`` with its size or not. Raises UNREPRESENTABLE for half a surrogate
    pair."""
    texts = (description.name, description.version, description.server, description.description)
    return writer.metadata_response(
        [writer.utf8(text, "the model's metadata") for text in texts],
        [_encode_port(port) for port in description.inputs],
        [_encode_port(port) for port in description.outputs],
        prefixed=prefixed,
    )


def decode_metadata(body: Buffer) -> Description:
    """A ``MetadataResponse``; absent fields are empty. Raises MALFORMED, INVALID_TENSOR."""
    view = reader.view_of(body)
    try:
        table = reader.root(view)
        *text_slots, inputs_slot, outputs_slot = reader.slots(view, table, 6)
        name, version, server, description = [
            reader.text(reader.string(view, table, slot), "the model's metadata") for slot in text_slots
        ]
        inputs = _decode_ports(view, reader.offsets(view, table, inputs_slot))
        outputs = _decode_ports(view, reader.offsets(view, table, outputs_slot))
    except reader.OUTSIDE as error:
        raise reader.outside(view) from error
    return Description(name, version, server, description, inputs, outputs)


def encode_json(description: Description) -> bytes:
    """The answer to GET: keys with a capital, numbers for types, null for an empty list."""
    document = {
        "Name": description.name,
        "Version": description.version,
        "Server": description.server,
        "Description": description.description,
        "Inputs": [_json_port(port) for port in description.inputs] or None,
        "Outputs": [_json_port(port) for port in description.outputs] or None,
    }
    return json.dumps(document, indent=4).encode()


def _ports(specs: tuple[TensorSpec, ...]) -> tuple[Port, ...]:
    return tuple(
        Port(spec.name, spec.description, spec.shape, WRITTEN_TYPES.get(spec.datatype, NULL))
        for spec in specs
    )


def _specs(ports: tuple[Port, ...]) -> tuple[TensorSpec, ...]:
    specs = []
    for port in ports:
        datatype = _DATATYPES.get(port.type)
        if datatype is None:
            raise InferenceError(
                ErrorCode.UNSUPPORTED,
                f"the model's metadata gives tensor '{port.name}' no usable type ({port.type}): "
                "declare the model's signature",
            )
        # any negative size means the same here
        shape = tuple(max(size, -1) for size in port.shape)
        specs.append(TensorSpec(port.name, datatype, shape, description=port.description))
    return tuple(specs)


def _encode_port(port: Port) -> writer.IO:
    what = f"the metadata of tensor '{port.name}'"
    return writer.utf8(port.name, what), writer.utf8(port.description, what), port.shape, port.type


def _decode_ports(view: memoryview, tables: list[int]) -> tuple[Port, ...]:
    ports, left = [], reader.MAX_UNFOLDING * len(view)
    for table in tables:
        name_slot, description_slot, shape_slot, type_slot = reader.slots(view, table, 4)
        name = reader.string(view, table, name_slot)
        description = reader.string(view, table, description_slot)
        left -= len(name) + len(description)
        if left < 0:
            raise reader.unfolded(view)
        label = reader.text(name, "the name of a tensor in the model's metadata")
        ports.append(
            Port(
                label,
                reader.text(description, f"the description of tensor '{label}'"),
                reader.dimensions(view, table, shape_slot, label),
                reader.byte(view, table, type_slot),
            )
        )
    return tuple(ports)


def _json_port(port: Port) -> dict[str, object]:
    return {
        "Name": port.name,
        "Description": port.description,
        "Shape": list(port.shape) or None,
        "Type": port.type,
    }
