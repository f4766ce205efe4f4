"""The tensors of the form: inputs as a browser sends them, outputs as it shows them."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from interlingua.schemas import ErrorCode, InferenceError, InferResponse, Signature, Tensor
from interlingua.translator.admin.elements import shown
from interlingua.translator.cli.arguments import RefusedError
from interlingua.translator.cli.values import from_array, from_json, read_npy

_MAX_ELEMENTS = 1 << 16
"""The elements of an output that the page gets; a picture of 256 x 256 is whole."""


def read_inputs(inputs: Sequence[Mapping[str, Any]], signature: Signature) -> list[Tensor]:
    """The tensors of ``Trial.inputs``. Raises ``InferenceError``."""
    try:
        return [_tensor(each, signature) for each in inputs]
    except RefusedError as error:
        raise InferenceError(ErrorCode.INVALID_TENSOR, str(error)) from error


def _tensor(given: Mapping[str, Any], signature: Signature) -> Tensor:
    name = str(given.get("name", ""))
    spec = signature.input_names.get(name)
    datatype = None if spec is None else spec.datatype
    try:
        if "npy" in given:
            content = base64.b64decode(given["npy"], validate=True)
            return from_array(name, read_npy(name, f"{name or 'input'}.npy", content), datatype)
        if "raw" in given and datatype is not None:
            data = base64.b64decode(given["raw"], validate=True)
            array = np.frombuffer(data, datatype.dtype).reshape([int(size) for size in given["shape"]])
            return Tensor.from_numpy(name, array, datatype)
        value = orjson.loads(given["text"]) if "text" in given else given.get("json")
        return from_json(name, value, datatype)
    except orjson.JSONDecodeError as error:
        raise InferenceError(ErrorCode.INVALID_TENSOR, f"input '{name}' is not JSON: {error}") from error
    except (ValueError, TypeError, KeyError, OverflowError, binascii.Error) as error:
        raise InferenceError(ErrorCode.INVALID_TENSOR, f"input '{name}': {error}") from error


def write_outputs(response: InferResponse) -> dict[str, Any]:
    """The answer for JSON."""
    outputs = [
        {
            "name": tensor.name,
            "datatype": tensor.datatype.value,
            "shape": tensor.shape,
            "data": shown(tensor, _MAX_ELEMENTS),
            "elements": math.prod(tensor.shape),
        }
        for tensor in response.outputs
    ]
    return {"model": response.model, "version": response.version, "outputs": outputs}
