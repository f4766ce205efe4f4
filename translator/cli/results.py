"""Answers of ``interlingua infer`` in files, and the durations of repeated requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from interlingua.schemas import InferResponse, Tensor
from interlingua.translator.cli.arguments import RefusedError
from interlingua.translator.cli.images import write_png
from interlingua.translator.cli.values import as_json, storable, write_npz

_QUANTILES = (0.5, 0.9, 0.99)


def check_file(path: str) -> None:
    """Raise ``RefusedError`` for a file of a kind that is not written, before a request is sent."""
    if Path(path).suffix.lower() not in _WRITERS:
        raise RefusedError(f"'{path}' ends in none of {', '.join(_WRITERS)}")


def write_file(path: str, response: InferResponse) -> None:
    """Write the outputs in the form of the suffix of ``path``. Raises ``RefusedError`` for outputs that have
    no such form, ``OSError``."""
    _WRITERS[Path(path).suffix.lower()](path, response)


def _write_npy(path: str, response: InferResponse) -> None:
    # to a path NumPy adds the suffix unless it is in lower case
    with open(path, "wb") as file:
        np.save(file, storable(_only(path, response)), allow_pickle=False)


def _write_png(path: str, response: InferResponse) -> None:
    write_png(path, _only(path, response))


def _write_json(path: str, response: InferResponse) -> None:
    Path(path).write_text(as_json(response), encoding="utf-8")


def _only(path: str, response: InferResponse) -> Tensor:
    """The only output."""
    if len(response.outputs) != 1:
        names = ", ".join(tensor.name for tensor in response.outputs) or "none"
        raise RefusedError(f"'{path}' has place for one output: choose it with --output (there are: {names})")
    return response.outputs[0]


_WRITERS: dict[str, Callable[[str, InferResponse], None]] = {
    ".npy": _write_npy,
    ".npz": write_npz,
    ".json": _write_json,
    ".png": _write_png,
}


def as_document(response: InferResponse, secs: Sequence[float]) -> str:
    """The last answer as one JSON object, with the durations of all requests."""
    answer = {**orjson.loads(as_json(response)), "timing": _timing(secs)}
    return orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE).decode()


def timing_lines(secs: Sequence[float]) -> Iterator[str]:
    """The durations for a person."""
    found = _timing(secs)
    counted = f"{found['requests']} requests in {found['secs']:.3f} s"
    yield f"{counted}, one after the other ({found['per_sec']:.1f}/s)"
    shown = (f"{name.removesuffix('_ms')} {found[name]:.3f}" for name in found if name.endswith("_ms"))
    yield f"latency in ms: {', '.join(shown)}"


def _timing(secs: Sequence[float]) -> dict[str, Any]:
    total = sum(secs)
    quantiles = np.quantile(secs, _QUANTILES, method="inverted_cdf")
    found = {
        f"p{at * 100:g}_ms": value * 1e3 for at, value in zip(_QUANTILES, quantiles.tolist(), strict=True)
    }
    return {
        "requests": len(secs),
        "secs": total,
        "per_sec": len(secs) / total,
        "mean_ms": total / len(secs) * 1e3,
        **found,
        "max_ms": max(secs) * 1e3,
    }
