"""The configured maxima of instances reach the models of a repository, at the start and with a client's load."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from interlingua.runtime.repository.files import Loaded
from interlingua.schemas import InferenceError, ModelControl
from interlingua.schemas.model_config import MODEL_CONFIG
from interlingua.translator.assembly import assemble, local_models
from interlingua.translator.config import parse
from interlingua.translator.config.context import Installation
from tests.runtime.repository.test_files import model_folder

INSTALLATION = Installation(serves={"oip": frozenset({"http"})}, calls={}, backends={"onnxruntime": True})


async def test_the_configured_maxima(tmp_path: Path) -> None:
    model_folder(tmp_path, "m")
    repository = {
        "path": str(tmp_path),
        "control": "explicit",
        "overrides": "config",
        "max_override_instances": 3,
    }
    document = {
        "server": {"max_instances": 5},
        "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
        "model_repository": [repository],
    }
    config = parse(yaml.safe_dump(document), "c.yaml", INSTALLATION)
    ((source, _),) = local_models(config)
    assert (source.limits.instances, source.limits.override_instances) == (5, 3)
    assembly = assemble(config, Loaded())
    own = ModelControl(config=MODEL_CONFIG(instance_group=[{"count": 4}]).SerializeToString())
    with pytest.raises(InferenceError, match=r"more than max_override_instances permits \(3\)"):
        await assembly.service.catalog.load("m", own)
    await assembly.close()
