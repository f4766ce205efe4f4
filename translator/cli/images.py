"""Images as input tensors, and output tensors as images, by Pillow."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interlingua.schemas import Datatype, Tensor, TensorSpec
from interlingua.translator.cli.arguments import Pixels, RefusedError

if TYPE_CHECKING:
    from PIL import Image as PillowImage

CHANNELS = {1: "L", 3: "RGB", 4: "RGBA"}
"""Pillow's modes by the number of channels."""

_MAGIC = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*")


def is_image(data: bytes) -> bool:
    # PNM begins with P and a digit; WebP is RIFF with its name after the size
    pnm = len(data) > 2 and data[:1] == b"P" and data[1:2] in b"123456" and data[2:3].isspace()
    return data.startswith(_MAGIC) or pnm or (data[:4] == b"RIFF" and data[8:12] == b"WEBP")


def read_image(name: str, path: str, data: bytes, spec: TensorSpec | None, pixels: Pixels) -> Tensor:
    """The image at ``path`` in size, channels and layout of the model's input. Raises ``RefusedError``."""
    image = _opened(name, path, data)
    if spec is None:
        array = np.asarray(image.convert("RGB" if len(image.getbands()) > 1 else "L"))
        return Tensor.from_numpy(name, array)
    layout = _layout(name, spec, image.size)
    if image.size != layout.size:
        image = image.resize(layout.size)
    values = np.asarray(image.convert(CHANNELS[layout.channels]))
    if layout.channels_first and values.ndim == 3:
        values = values.transpose(2, 0, 1)
    return Tensor.from_numpy(
        name, _valued(name, values, spec.datatype, pixels).reshape(layout.shape), spec.datatype
    )


class _Layout(NamedTuple):
    shape: tuple[int, ...]
    size: tuple[int, int]
    channels: int
    channels_first: bool = False


def _layout(name: str, spec: TensorSpec, size: tuple[int, int]) -> _Layout:
    """How an image of ``size`` (width, height) becomes a tensor of ``spec``. The first of four dimensions is
    the batch, and so is a free one before two others."""
    shape = spec.shape
    given_width, given_height = size

    def free(dimension: int, own: int) -> int:
        return own if dimension < 0 else dimension

    match shape:
        case (batch, channels, height, width) if channels in CHANNELS and batch in (-1, 1):
            height, width = free(height, given_height), free(width, given_width)
            return _Layout((1, channels, height, width), (width, height), channels, True)
        case (batch, height, width, channels) if channels in CHANNELS and batch in (-1, 1):
            height, width = free(height, given_height), free(width, given_width)
            return _Layout((1, height, width, channels), (width, height), channels)
        case (channels, height, width) if channels in CHANNELS:
            height, width = free(height, given_height), free(width, given_width)
            return _Layout((channels, height, width), (width, height), channels, True)
        case (height, width, channels) if channels in CHANNELS:
            height, width = free(height, given_height), free(width, given_width)
            return _Layout((height, width, channels), (width, height), channels)
        case (-1, height, width):
            height, width = free(height, given_height), free(width, given_width)
            return _Layout((1, height, width), (width, height), 1)
        case (-1, count) if count > 0:
            width, height = _area(count, size)
            return _Layout((1, count), (width, height), 1)
        case (height, width):
            height, width = free(height, given_height), free(width, given_width)
            return _Layout((height, width), (width, height), 1)
    raise RefusedError(f"input '{name}': an image does not fit the shape {list(shape)}; give an .npy file")


def _area(count: int, size: tuple[int, int]) -> tuple[int, int]:
    """Width and height of ``count`` pixels: the image's own, or a square."""
    side = math.isqrt(count)
    if size[0] * size[1] == count or side * side != count:
        return size
    return side, side


def _valued(name: str, values: NDArray[Any], datatype: Datatype, pixels: Pixels) -> NDArray[Any]:
    if datatype.dtype.kind in "iu":
        if datatype is Datatype.INT8:
            raise RefusedError(f"input '{name}': INT8 has no place for values of pixels up to 255")
        return values.astype(datatype.dtype)
    if datatype is Datatype.BOOL:
        raise RefusedError(f"input '{name}': an image does not become BOOL")
    scaled = values.astype(np.float64) * ((pixels.white - pixels.black) / 255) + pixels.black
    return scaled.astype(datatype.dtype)


def write_png(path: str, tensor: Tensor) -> None:
    """Write an output as a picture: two dimensions, or three with channels first or last, besides dimensions
    of 1. Floats up to 1 are 0 to 1, others 0 to 255. Raises ``RefusedError`` for any other tensor."""
    array = tensor.numpy().squeeze()
    if tensor.datatype is Datatype.BYTES or array.ndim not in (2, 3):
        raise RefusedError(f"output '{tensor.name}' {list(tensor.shape)} is no picture")
    if array.ndim == 3 and array.shape[-1] not in CHANNELS and array.shape[0] in CHANNELS:
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[-1] not in CHANNELS:
        raise RefusedError(f"output '{tensor.name}' {list(tensor.shape)} has no 1, 3 or 4 channels")
    values = array.astype(np.float64)
    if tensor.datatype is Datatype.BOOL or (array.dtype.kind in "fV" and values.size and values.max() <= 1):
        values = values * 255
    if not np.isfinite(values).all() or (values.size and (values.min() < 0 or values.max() > 255)):
        raise RefusedError(f"output '{tensor.name}' has values outside of 0 to 255, or 0 to 1: no picture")
    _pillow().fromarray(np.rint(values).astype(np.uint8)).save(path, format="PNG")


def _opened(name: str, path: str, data: bytes) -> PillowImage.Image:
    pillow = _pillow()
    try:
        image = pillow.open(io.BytesIO(data))
        image.load()
    # Pillow raises many kinds for damaged files
    except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
        where = Path(path).name
        # the text of that error is about an object in memory
        reason = "unknown format" if isinstance(error, pillow.UnidentifiedImageError) else error
        raise RefusedError(f"input '{name}': '{where}' cannot be read as an image: {reason}") from error
    return image


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise RefusedError("images need Pillow: pip install 'interlingua[images]'") from None
    return Image
