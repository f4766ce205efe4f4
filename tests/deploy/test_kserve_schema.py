"""The manifests for KServe have only fields of its resources, of their types. What its admission webhooks refuse beyond
that is not tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
KSERVE = ROOT / "deploy" / "kserve"


def test_every_field_is_one_of_the_resource() -> None:
    resources = [each for path in sorted(KSERVE.iterdir()) for each in yaml.safe_load_all(path.read_text())]
    assert [each["kind"] for each in resources] == [
        "InferenceService",
        "ConfigMap",
        "ServingRuntime",
        "ConfigMap",
    ]
    wrong = yaml.safe_load((KSERVE / "serving-runtime.yaml").read_text().partition("---")[0])
    wrong["spec"]["containers"][0]["port"] = 3
    wrong["spec"]["multiModel"] = "no"
    command = [sys.executable, "-m", "tests.deploy.kserve_fields"]
    text = json.dumps([*resources, wrong])
    ran = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=True)
    *found, faults = json.loads(ran.stdout)
    assert found == [[]] * 4
    assert sorted(faults) == [
        "V1alpha1ServingRuntime.spec.containers[0].port is unknown",
        "V1alpha1ServingRuntime.spec.multiModel: 'no' is no bool",
    ]
