"""The steps of the Dockerfile, in empty folders and empty environments, and the daemon that they install."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest
import requests

from tests.deploy.dockerfile import Stage, build, stages
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def test_the_context_has_what_the_stages_copy() -> None:
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    sent = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        source.removeprefix("./")
        for stage in stages(DEPLOY / "Dockerfile").values()
        for word, rest in stage.steps
        if word == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
    }
    assert sent == copied
    assert all((ROOT / name).exists() for name in copied)


def test_the_images_differ_in_their_base_and_extra_alone() -> None:
    found = stages(DEPLOY / "Dockerfile")
    cpu, gpu = (
        [
            (word, re.sub(r"--constraint constraints.txt |-gpu", "", rest))
            for word, rest in found[name].steps
            if word != "ENV" and "apt-get" not in rest and rest != "constraints.txt ./"
        ]
        for name in ("cpu", "gpu")
    )
    assert cpu == gpu


@pytest.mark.skipif("DEPLOY_IMAGE" not in os.environ, reason="installs two environments (make test-deploy)")
@pytest.mark.timeout(600)
def test_the_image_for_cpus_serves(tmp_path: Path) -> None:
    found = stages(DEPLOY / "Dockerfile")
    for name in ("wheel", "cpu"):
        build(found[name], ROOT, tmp_path / name, found)
    _serves(found["cpu"])


def _serves(stage: Stage) -> None:
    """The command of the container serves the example models, on free ports of loopback."""
    ports = [free_port() for _ in range(3)]
    config = stage.workdir / "config.yaml"
    text = config.read_text()
    for port, number in zip((8000, 8001, 8002), ports, strict=True):
        assert text.count(f'":{port}"') == 1
        text = text.replace(f'":{port}"', f'"127.0.0.1:{number}"')
    config.write_text(text)
    command = [*json.loads(stage.instruction("ENTRYPOINT")), *json.loads(stage.instruction("CMD"))]
    daemon = subprocess.Popen(command, cwd=stage.workdir, stderr=subprocess.PIPE, text=True, env=stage.env)
    try:
        assert daemon.stderr is not None
        events = (json.loads(line)["event"] for line in daemon.stderr)
        assert "serving" in events
        model = f"http://127.0.0.1:{ports[0]}/v2/models/digits"
        assert requests.get(model, timeout=30).json()["name"] == "digits"
        check = json.loads(stage.instruction("HEALTHCHECK").partition("CMD ")[2])
        assert fnmatch(check[-1], "*http://127.0.0.1:8002/health/live*")
        check[-1] = check[-1].replace("8002", str(ports[2]))
        subprocess.run(check, cwd=stage.workdir, check=True, timeout=30)
        daemon.send_signal(getattr(signal, stage.instruction("STOPSIGNAL")))
        assert daemon.wait(30) == 0
    finally:
        daemon.kill()
        daemon.wait()
        assert daemon.stderr is not None
        daemon.stderr.close()
