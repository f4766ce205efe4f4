"""What the commands of the documentation find: files in a folder, and a daemon of the example models."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

from interlingua.schemas import Datatype
from tests.e2e.daemon import ROOT, Daemon
from tests.ports import free_ports
from tests.runtime.onnx_models import node, value, write

HTTP, GRPC, ADMIN, GRPS = "8000", "8001", "8002", "7080"
_LOCAL = re.compile(r"(localhost|127\.0\.0\.1):(\d+)")
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

BAD = """listeners:
  - listen: 127.0.0.1:0
    transport: htpt
models:
  resnet50: {upstream: tritn}
upstreams: {triton: {dialect: oip, transport: grpc, urls: [new:8001]}}
"""
SIMPLE = {"INPUT0": [list(range(1, 17))], "INPUT1": [[1] * 16]}


@dataclass
class World:
    """``ports`` are those here by those of the pages."""

    folder: Path
    ports: Mapping[str, str]
    daemon: Daemon = field(init=False)

    @classmethod
    def start(cls, folder: Path) -> World:
        first = free_ports(4)
        pages = (HTTP, GRPC, ADMIN, GRPS)
        world = cls(folder, {page: str(first + place) for place, page in enumerate(pages)})
        world._write_files()
        world.daemon = Daemon.start(folder, world.config())
        return world

    def here(self, text: str) -> str:
        """``text`` of a page with the addresses of this machine."""
        return _LOCAL.sub(lambda at: f"{at[1]}:{self.ports.get(at[2], at[2])}", text)

    def there(self, text: str) -> str:
        """Output with the addresses of the pages."""
        known = {here: page for page, here in self.ports.items()}
        return _LOCAL.sub(lambda at: f"{at[1]}:{known.get(at[2], at[2])}", text)

    def config(self, *, resnet50: bool = False, max_connections: int = 1000) -> dict[str, Any]:
        resnet = {"resnet50": {"backend": "onnxruntime", "path": str(self.folder / "resnet50.onnx")}}
        prompt = {"name": "prompt", "datatype": "BYTES", "shape": [-1]}
        llm = {
            "backend": "identity",
            "signature": {"inputs": [prompt], "outputs": [{**prompt, "name": "text"}]},
        }
        return {
            "listeners": [
                {
                    **self._listener(HTTP, "http"),
                    "default_model": "chat",
                    "max_connections": max_connections,
                },
                self._listener(GRPC, "grpc"),
                {**self._listener(GRPS, "http"), "dialects": ["grps"], "default_model": "digits"},
            ],
            "admin": {"listen": f"127.0.0.1:{self.ports[ADMIN]}"},
            "model_repository": [{"path": str(self.folder / "models")}],
            "models": {"llm": llm, **(resnet if resnet50 else {})},
            "grps": {
                "customized_predict_http": {
                    "path": "/v1/chat/completions",
                    "customized_body": True,
                    "streaming_ctrl": {
                        "ctrl_mode": "body_param",
                        "ctrl_key": "stream",
                        "res_content_type": "text/event-stream",
                    },
                }
            },
            "tap": {"path": str(self.folder / "run/tap.rec")},
        }

    def write_config(self, **options: Any) -> None:
        """The file that the daemon reads again."""
        server = {"log_format": "json", "drain_secs": 0.0, "workers": Daemon.workers}
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump({**self.config(**options), "server": server}))

    def environment(self) -> dict[str, str]:
        binaries = Path(sys.executable).parent
        return {
            **os.environ,
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "DIGEST": "0" * 64,
        }

    def _listener(self, port: str, transport: str) -> dict[str, Any]:
        return {"listen": f"127.0.0.1:{self.ports[port]}", "transport": transport}

    def _write_files(self) -> None:
        models = self.folder / "models"
        for name in ("simple", "digits", "identity_fp32"):
            shutil.copytree(ROOT / "examples/models" / name, models / name)
        shutil.copytree(ROOT / "examples/http_models/chat", models / "chat")
        self._write_upper(models / "upper")
        means = node("ReduceMean", ["data"], ["prob"], axes=[2, 3], keepdims=0)
        picture = value("data", Datatype.FP32, ["n", 3, 8, 8])
        write(self.folder / "resnet50.onnx", [means], [picture], [value("prob", Datatype.FP32, ["n", 3])])
        Image.new("RGB", (16, 16), (255, 128, 0)).save(self.folder / "cat.jpg")
        np.save(self.folder / "ones.npy", np.ones((1, 16), np.int32))
        shutil.copy(ROOT / "examples/digits/seven.npy", self.folder)
        (self.folder / "bad.yaml").write_text(BAD)
        (self.folder / "request.http").write_bytes(_request())
        (self.folder / ".config/fish/completions").mkdir(parents=True)

    def _write_upper(self, folder: Path) -> None:
        """The model of docs/python-models.md, from its blocks."""
        blocks = _FENCED.findall((ROOT / "docs/python-models.md").read_text())
        (settings,) = (code for language, code in blocks if not language and 'name: "UPPER"' in code)
        (program,) = (code for language, code in blocks if language == "python")
        (folder / "1").mkdir(parents=True)
        (folder / "config.pbtxt").write_text(settings)
        (folder / "1/model.py").write_text(program)


def _request() -> bytes:
    """A request of the Open Inference Protocol over HTTP, as it is on the wire."""
    inputs = [
        {"name": name, "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
        for name in ("INPUT0", "INPUT1")
    ]
    body = json.dumps({"id": "my-id", "inputs": inputs}).encode()
    head = f"POST /v2/models/add_sub/infer HTTP/1.1\r\nhost: here\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body
