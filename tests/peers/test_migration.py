"""docs/migration.md with the real new servers: Triton and KServe."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.oip_client import Server
from tests.e2e.test_migration import move

pytestmark = [pytest.mark.peers, pytest.mark.timeout(240)]


def test_from_the_tensorrt_inference_server_to_triton(triton: Server, tmp_path: Path) -> None:
    new = {"new:8001": triton.grpc}
    move("From the TensorRT Inference Server to Triton", tmp_path, new, lambda step, traffic: None)


def test_from_graphpipe_to_kserve(kserve: Server, tmp_path: Path) -> None:
    new = {"new:8000": kserve.http}
    move("From GraphPipe to KServe", tmp_path, new, lambda step, traffic: None)


def test_from_grps_to_triton(triton: Server, tmp_path: Path) -> None:
    new = {"new:8001": triton.grpc}
    move("From grps to the Open Inference Protocol", tmp_path, new, lambda step, traffic: None)


def test_from_tensorflow_serving_to_triton(triton: Server, tmp_path: Path) -> None:
    new = {"new:8001": triton.grpc}
    move("From TensorFlow Serving to Triton", tmp_path, new, lambda step, traffic: None)
