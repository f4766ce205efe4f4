"""A daemon whose file a test changes, and its reloads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
import yaml

from tests.e2e.daemon import ROOT, WAIT_SECS, Daemon


class Reloaded:
    """A daemon in ``folder`` that runs ``config``, a document; :meth:`write` changes the file, as
    :meth:`reload` applies it."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder = folder
        self.daemon = Daemon.start(folder, config)
        self.path = folder / "config.yaml"

    @property
    def document(self) -> dict[str, Any]:
        """The file."""
        found: dict[str, Any] = yaml.safe_load(self.path.read_text())
        return found

    def write(self, **sections: Any) -> None:
        """Replace sections of the file; None removes one. ``server`` is merged."""
        document = self.document
        sections["server"] = {**document["server"], **sections.get("server", {})}
        document |= sections
        self.path.write_text(
            yaml.safe_dump({key: each for key, each in document.items() if each is not None})
        )

    def post(self, **headers: str) -> requests.Response:
        """``POST /reload``."""
        return requests.post(f"{self.daemon.admin}/reload", headers=headers, timeout=WAIT_SECS)

    def reload(self, **sections: Any) -> dict[str, Any]:
        """Write and reload; the changes."""
        self.write(**sections)
        answer = self.post()
        assert answer.status_code == 200, answer.text
        changes: dict[str, Any] = answer.json()["changes"]
        return changes

    def refused(self, **sections: Any) -> list[str]:
        """Write, and have the reload refused, then restore the file; the errors."""
        before = self.path.read_text()
        self.write(**sections)
        answer = self.post()
        self.path.write_text(before)
        assert answer.status_code == 422, answer.text
        assert answer.json()["reloaded"] is False
        errors: list[str] = answer.json()["errors"]
        return errors

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """``interlingua reload``."""
        line = [sys.executable, "-m", "interlingua", "reload", *arguments]
        return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)


@contextmanager
def reloaded(folder: Path, config: dict[str, Any]) -> Iterator[Reloaded]:
    """The daemon, which must end in order."""
    found = Reloaded(folder, config)
    try:
        yield found
        assert found.daemon.stop() == 0
    finally:
        found.daemon.kill()


def infer(address: str, model: str, session: Any = requests) -> requests.Response:
    """The answer to an inference of OIP over HTTP."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.5, -2.5]}
    url = f"http://{address}/v2/models/{model}/infer"
    found: requests.Response = session.post(url, json={"inputs": [tensor]}, timeout=WAIT_SECS)
    return found
