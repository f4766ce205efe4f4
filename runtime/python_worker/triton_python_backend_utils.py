"""The module that models for Triton's Python backend import: tensors, requests, responses, errors.

Names, arguments and texts are Triton's, because models depend on them. A sender and ``InferenceRequest`` get
functions that reach the server.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partialmethod
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from interlingua.runtime.python_worker import dlpack
from interlingua.runtime.python_worker.auto_complete import AutoCompleteConfig
from interlingua.runtime.python_worker.strings import pack_strings, unpack_strings

ModelConfig = AutoCompleteConfig

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
TRITONSERVER_MEMORY_CPU = 0
TRITONSERVER_MEMORY_CPU_PINNED = 1
TRITONSERVER_MEMORY_GPU = 2

TRITON_STRING_TO_NUMPY: dict[str, Any] = {
    "TYPE_BOOL": bool,
    "TYPE_UINT8": np.uint8,
    "TYPE_UINT16": np.uint16,
    "TYPE_UINT32": np.uint32,
    "TYPE_UINT64": np.uint64,
    "TYPE_INT8": np.int8,
    "TYPE_INT16": np.int16,
    "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64,
    "TYPE_FP16": np.float16,
    "TYPE_FP32": np.float32,
    "TYPE_FP64": np.float64,
    "TYPE_STRING": np.object_,
    "TYPE_BF16": ml_dtypes.bfloat16,
}


class TritonModelException(Exception):  # noqa: N818
    """What a call in this module raises when it cannot be done."""


class TritonError:
    """A failure as a response carries it."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        self._message = str(message)
        self._code = code

    def code(self) -> int:
        return self._code

    def message(self) -> str:
        return self._message

    def __str__(self) -> str:
        return self._message


class Tensor:
    """A named tensor in memory of the CPU."""

    def __init__(self, name: str, data: NDArray[Any]) -> None:
        if not isinstance(data, np.ndarray):
            raise TritonModelException(
                f"tensor '{name}' needs a NumPy array, and was given a {type(data).__name__}"
            )
        self._name = name
        self._array = data

    @classmethod
    def from_dlpack(cls, name: str, tensor: Any) -> Tensor:
        """A tensor over memory of another library: a DLPack capsule or an object that returns one."""
        try:
            return cls(name, dlpack.from_capsule(tensor))
        except (TypeError, ValueError) as error:
            raise TritonModelException(f"tensor '{name}': {error}") from error

    def name(self) -> str:
        return self._name

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def as_numpy(self) -> NDArray[Any]:
        """The tensor as an array, without a copy; strings as ``bytes`` objects, BF16 as
        ``ml_dtypes.bfloat16``."""
        return self._array

    def triton_dtype(self) -> str:
        return numpy_to_triton_type(self._array.dtype)

    def is_cpu(self) -> bool:
        """True: all tensors of a model are in memory of the CPU."""
        return True

    def to_dlpack(self) -> Any:
        """A DLPack capsule over the same memory; strings have none."""
        try:
            return dlpack.to_capsule(np.ascontiguousarray(self._array))
        except TypeError as error:
            raise TritonModelException(f"tensor '{self._name}': {error}") from error

    def __dlpack__(self, **_: Any) -> Any:
        return self.to_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class PreferredMemory:
    """The preferred place of another model's outputs; all of them are in memory of the CPU."""

    def __init__(self, preferred_memory_type: int, preferred_device_id: int = 0) -> None:
        self.preferred_memory_type = preferred_memory_type
        self.preferred_device_id = preferred_device_id


class InferenceResponse:
    """A model's answer: tensors, or an error. ``parameters`` reach the client with them."""

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: TritonError | None = None,
        parameters: Mapping[str, Any] | str | None = None,
    ) -> None:
        self._outputs = list(output_tensors)
        for output in self._outputs:
            if not isinstance(output, Tensor):
                raise TritonModelException(
                    f"output_tensors must be Tensor objects, and one is a {type(output).__name__}"
                )
        self._error = error
        self._parameters = parameters if isinstance(parameters, str) else _checked(parameters)

    def output_tensors(self) -> list[Tensor]:
        return self._outputs

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error

    def parameters(self) -> str:
        return self._parameters


_ONE_AND_NO_MORE = "Unable to send response. Non-decoupled model cannot send more than one response."
_FINAL_TOO_EARLY = (
    "Unable to send response. Non-decoupled model cannot send complete final before sending a response."
)
_NO_RESPONSE = TritonError("the model has let go of a request without a response")

Deliver = Callable[[InferenceResponse | None, bool], None]
"""Passes a response, or none, to the server; True for the end of the answer."""


class InferenceResponseSender:
    """Sends the responses to one request, from any thread, until the final flag was sent: any number for a
    ``decoupled`` model, else one."""

    def __init__(self, deliver: Deliver, cancelled: Callable[[], bool], decoupled: bool) -> None:
        self._deliver = deliver
        self._cancelled = cancelled
        self._decoupled = decoupled
        self._lock = threading.Lock()
        self._sent = False
        self.closed = False

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Send ``response``; with TRITONSERVER_RESPONSE_COMPLETE_FINAL it is the last, and may be none. Waits
        while the client is far behind. Raises ``TritonModelException`` after the last."""
        if flags not in (0, TRITONSERVER_RESPONSE_COMPLETE_FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if response is None and not flags:
            raise TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )
        with self._lock:
            if self.closed:
                raise TritonModelException("Unable to send response. Response sender has been closed.")
            if not self._decoupled and (response is None) is not self._sent:
                raise TritonModelException(_ONE_AND_NO_MORE if self._sent else _FINAL_TOO_EARLY)
            self._deliver(response, bool(flags))
            self._sent = True
            self.closed = bool(flags)

    def close(self) -> bool:
        """Send nothing more. Returns whether it was open."""
        with self._lock:
            open_until_now = not self.closed
            self.closed = True
            return open_until_now

    def is_cancelled(self) -> bool:
        return self._cancelled()

    def __del__(self) -> None:
        # a model that drops the sender has no more to say, and its client must not wait forever
        if not self.closed and not sys.is_finalizing():
            missing = None if self._decoupled or self._sent else InferenceResponse(error=_NO_RESPONSE)
            self.send(missing, TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _not_yet(request: InferenceRequest, decoupled: bool) -> Any:
    raise TritonModelException(
        f"model '{request.model_name()}' cannot be called while the model that calls it is being loaded"
    )


class InferenceRequest:
    """A request that this model received, or one that it makes for another model. The worker sets ``infer``
    and ``infer_async``."""

    infer: Callable[[InferenceRequest, bool], Any] = staticmethod(_not_yet)
    infer_async: Callable[[InferenceRequest, bool], Awaitable[Any]] = staticmethod(_not_yet)

    def __init__(
        self,
        request_id: str = "",
        correlation_id: int | str = 0,
        inputs: Sequence[Tensor] = (),
        requested_output_names: Sequence[str] = (),
        model_name: str = "",
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: Any = None,
        trace: Any = None,
        parameters: Mapping[str, Any] | str | None = None,
    ) -> None:
        self._id = request_id
        self._correlation_id = correlation_id
        self._inputs = list(inputs)
        self._requested = list(requested_output_names)
        self._model_name = model_name
        self._model_version = model_version
        self._flags = flags
        self._timeout = timeout
        self._preferred_memory = preferred_memory
        self._trace = trace
        self._parameters = parameters if isinstance(parameters, str) else _checked(parameters)
        self._sender: InferenceResponseSender | None = None
        self._streaming = False
        self._release_flags = TRITONSERVER_REQUEST_RELEASE_ALL

    def inputs(self) -> list[Tensor]:
        return self._inputs

    def request_id(self) -> str:
        return self._id

    def correlation_id(self) -> int | str:
        """The id of the sequence; 0 for none."""
        return self._correlation_id

    def requested_output_names(self) -> list[str]:
        return self._requested

    def set_requested_output_names(self, names: Sequence[str]) -> None:
        self._requested = list(names)

    def model_name(self) -> str:
        return self._model_name

    def model_version(self) -> int:
        return self._model_version

    def flags(self) -> int:
        return self._flags

    def set_flags(self, flags: int) -> None:
        self._flags = flags

    def set_release_flags(self, flags: int) -> None:
        """With TRITONSERVER_REQUEST_RELEASE_RESCHEDULE the request of an iterative sequence comes again."""
        self._release_flags = flags

    def timeout(self) -> int:
        """In microseconds; 0 for no limit."""
        return self._timeout

    def preferred_memory(self) -> Any:
        return self._preferred_memory

    def trace(self) -> Any:
        """None: requests are not traced into models."""
        return self._trace

    def parameters(self) -> str:
        return self._parameters

    def is_cancelled(self) -> bool:
        return self._sender is not None and self._sender.is_cancelled()

    def is_streaming(self) -> bool:
        """Whether the caller has requested a stream, and takes any number of responses. Not in Triton; models
        of grps know it as ``context.if_streaming()``."""
        return self._streaming

    def get_response_sender(self) -> InferenceResponseSender:
        if self._sender is None:
            raise TritonModelException("a request that a model has made has no response sender")
        return self._sender

    def exec(self, decoupled: bool = False) -> Any:
        """Call the model: its response, or an iterator over the responses of a decoupled model. A failure is
        a response with an error. Raises ``TritonModelException`` for inputs that cannot be sent, and while
        the caller is being loaded."""
        return type(self).infer(self, decoupled)

    async def async_exec(self, decoupled: bool = False) -> Any:
        return await type(self).infer_async(self, decoupled)


def _checked(parameters: Mapping[str, Any] | None) -> str:
    for key, value in (parameters or {}).items():
        if not isinstance(key, str) or not isinstance(value, bool | int | float | str):
            raise TritonModelException(
                "Expect parameters keys to have type str and values to have type bool/int/float/str, found "
                f"key {key!r} with a {type(value).__name__}"
            )
    return json.dumps(dict(parameters or {}))


# --- functions


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    return _named(inference_request.inputs(), name)


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    return _named(inference_response.output_tensors(), name)


def _named(tensors: Sequence[Tensor], name: str) -> Tensor | None:
    return next((tensor for tensor in tensors if tensor.name() == name), None)


def get_input_config_by_name(model_config: Mapping[str, Any], name: str) -> Any:
    return next((entry for entry in model_config.get("input", ()) if entry["name"] == name), None)


def get_output_config_by_name(model_config: Mapping[str, Any], name: str) -> Any:
    return next((entry for entry in model_config.get("output", ()) if entry["name"] == name), None)


def using_decoupled_model_transaction_policy(model_config: Mapping[str, Any]) -> bool:
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def triton_string_to_numpy(triton_type_string: str) -> Any:
    return TRITON_STRING_TO_NUMPY.get(triton_type_string)


def triton_to_numpy_type(data_type: int) -> Any:
    return _NUMPY_OF_NUMBER.get(data_type)


def numpy_to_triton_type(data_type: Any) -> str:
    """The datatype such as ``TYPE_FP32`` for NumPy's; strings and objects are ``TYPE_STRING``."""
    dtype = np.dtype(data_type)
    if dtype.kind in "OSU":
        return "TYPE_STRING"
    found = _TYPE_OF_DTYPE.get(dtype.newbyteorder("=") if dtype.byteorder == ">" else dtype)
    if found is None:
        raise TritonModelException(f"no datatype stores NumPy's {dtype}")
    return found


_TYPE_OF_DTYPE = {np.dtype(kind): name for name, kind in TRITON_STRING_TO_NUMPY.items()}

# the order of the enumeration in a model configuration, from 1
_INTEGERS = ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64")
_NUMBERED = (*_INTEGERS, "FP16", "FP32", "FP64", "STRING", "BF16")
_NUMPY_OF_NUMBER = {
    number: TRITON_STRING_TO_NUMPY[f"TYPE_{name}"] for number, name in enumerate(_NUMBERED, 1)
}


def serialize_byte_tensor(input_tensor: NDArray[Any]) -> NDArray[Any] | None:
    """Elements as they are sent, each after its length in four bytes, in an array of one ``bytes``; None for
    an empty array. Objects other than ``bytes`` and ``str`` are converted to text."""
    if input_tensor.size == 0:
        return None
    return np.asarray(pack_strings(input_tensor), dtype=np.object_)


def deserialize_bytes_tensor(encoded_tensor: bytes) -> NDArray[Any]:
    return unpack_strings(memoryview(encoded_tensor))


class Logger:
    """Writes to the server's log. The worker sets ``write``, which takes a level and a text."""

    write: Callable[[str, str], None]

    @classmethod
    def log(cls, message: Any, level: str = "info") -> None:
        """Write at a level by name: info, warning, error or verbose."""
        cls.write(level, str(message))

    log_info = partialmethod(log, level="info")
    log_warn = partialmethod(log, level="warning")
    log_error = partialmethod(log, level="error")
    log_verbose = partialmethod(log, level="verbose")
