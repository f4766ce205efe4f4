"""The one import package: its public names, and that no module of it has a second name."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import interlingua
from tests.runtime.python_models import loaded, numbers, request

ROOT = Path(__file__).parents[1]
ROOMS = {"schemas", "protocols", "runtime", "translator"}

_EVERY_MODULE = """
import importlib, pkgutil, sys
import interlingua
for found in pkgutil.walk_packages(interlingua.__path__, "interlingua."):
    if found.name not in {absent!r} and not found.name.endswith("__main__"):
        importlib.import_module(found.name)
sys.exit(",".join(name for name in sys.modules if name.partition(".")[0] in {rooms!r}) or 0)
"""


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=ROOT, capture_output=True, text=True
    )


def test_no_module_is_imported_by_a_bare_name() -> None:
    # these import an optional engine, or pytest's fixtures
    engines = {
        "sklearn": "skops",
        "sklearn_checks": "sklearn",
        "sklearn_forests": "sklearn",
        "xgboost": "xgboost",
        "lightgbm": "lightgbm",
    }
    absent = {
        f"interlingua.runtime.backends.{name}"
        for name, engine in engines.items()
        if find_spec(engine) is None
    }
    if find_spec("ray") is None:
        engine = [
            "connection",
            "deployment",
            "errors",
            "load",
            "loopback",
            "ownership",
            "replica",
            "router",
            "version",
        ]
        absent |= {f"interlingua.runtime.ray_serve.{name}" for name in engine}
    absent |= {"interlingua.runtime.backends.torch", "interlingua.translator.conformance.test_conformance"}
    ran = python(_EVERY_MODULE.format(absent=absent, rooms=ROOMS))
    assert (ran.returncode, ran.stderr) == (0, "")


async def test_a_worker_imports_neither_bare_names_nor_the_daemon(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        import sys
        bare = {"schemas", "protocols", "runtime", "translator"}
        rooms = [name.partition(".")[0] in bare for name in sys.modules]
        daemon = [name.startswith(("interlingua.translator", "interlingua.protocols")) for name in sys.modules]
        ours = [name.startswith("interlingua.runtime") for name in sys.modules]
        return [answer([sum(rooms), sum(daemon), any(ours)]) for request in requests]
    """
    model = loaded(tmp_path, body)
    assert numbers(await model.infer(request(0))) == [0, 0, 1]
    await model.close()


def test_importing_the_package_loads_nothing() -> None:
    ran = python(
        "import sys, interlingua; sys.exit('numpy' in sys.modules or 'interlingua.schemas' in sys.modules)"
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_public_names() -> None:
    from interlingua import InferenceError, Tensor, conformance, load_config, serve
    from interlingua.schemas import errors, tensor
    from interlingua.translator import config, daemon
    from interlingua.translator.conformance import session

    assert (Tensor, InferenceError) == (tensor.Tensor, errors.InferenceError)
    assert (serve, load_config, conformance) == (daemon.serve, config.load, session)
    assert {"Tensor", "serve", "load_config", "conformance"} <= set(dir(interlingua))
    for name in dir(interlingua):
        assert getattr(interlingua, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'interlingua' has no attribute 'server'"):
        _ = interlingua.server
