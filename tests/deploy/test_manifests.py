"""The manifests for Kubernetes, the chart, the runtime for KServe: valid, consistent, and of configurations that
the daemon accepts."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from interlingua.protocols.registry import DIALECTS
from interlingua.translator.config import parse
from tests.deploy.charts import render

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "interlingua"
VERSIONS = ("1.29", "1.33")
"""``appProtocol: kubernetes.io/h2c`` and everything else here is stable in all of them."""

EVERYTHING: dict[str, Any] = {
    "image": {"tag": "1.2.3"},
    "imagePullSecrets": [{"name": "registry"}],
    "autoscaling": {"enabled": True},
    "networkPolicy": {
        "enabled": True,
        "egress": [{"to": [{"namespaceSelector": {}}], "ports": [{"port": 8001}]}],
    },
    "service": {"annotations": {"a": "b"}},
    "env": [{"name": "A", "value": "b"}],
    "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
    "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    "podAnnotations": {"a": "b"},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
}


def plain() -> list[dict[str, Any]]:
    folder = DEPLOY / "kubernetes"
    files = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    return [each for name in files for each in yaml.safe_load_all((folder / name).read_text())]


SETS = {
    "kubernetes": plain,
    "helm": lambda: render(CHART, "bridge"),
    "helm-everything": lambda: render(CHART, "bridge", EVERYTHING),
}


@pytest.fixture(params=SETS)
def objects(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return SETS[request.param]()


def one(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (each for each in objects if each["kind"] == kind)
    return found


@pytest.mark.skipif(
    importlib.util.find_spec("kubernetes_validate") is None,
    reason="needs the extra 'deploy' (make test-deploy)",
)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_objects_follow_their_schema(objects: list[dict[str, Any]], version: str) -> None:
    import kubernetes_validate

    for each in objects:
        kubernetes_validate.validate(each, version, strict=True)


def test_every_file_is_a_resource() -> None:
    folder = DEPLOY / "kubernetes"
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())
    generated = {file for each in listed["configMapGenerator"] for file in each["files"]}
    assert {"kustomization.yaml", *listed["resources"], *generated} == {
        path.name for path in folder.iterdir()
    }


def test_selectors_select_the_pods(objects: list[dict[str, Any]]) -> None:
    deployment = one(objects, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    selectors = [
        deployment["spec"]["selector"]["matchLabels"],
        one(objects, "Service")["spec"]["selector"],
        one(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        *(each["spec"]["podSelector"]["matchLabels"] for each in objects if each["kind"] == "NetworkPolicy"),
    ]
    for selector in selectors:
        assert selector and selector.items() <= labels


def test_ports_have_names_that_exist(objects: list[dict[str, Any]]) -> None:
    (container,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    named = {port["name"]: port["containerPort"] for port in container["ports"]}
    used = [port["targetPort"] for port in one(objects, "Service")["spec"]["ports"]]
    used += [container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")]
    for policy in (each for each in objects if each["kind"] == "NetworkPolicy"):
        used += [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    assert set(used) <= named.keys()
    config = configuration(objects)
    listens = [each["listen"] for each in (*config["listeners"], config["admin"])]
    assert sorted(listens) == sorted(f":{number}" for number in named.values())


def test_a_pod_has_time_to_drain(objects: list[dict[str, Any]]) -> None:
    server = parse(yaml.safe_dump(configuration(objects))).server
    grace = one(objects, "Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > server.drain_secs + server.shutdown_timeout_secs


def configuration(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The configuration of the daemon in a set of objects."""
    maps = [each for each in objects if each["kind"] == "ConfigMap"]
    text = maps[0]["data"]["config.yaml"] if maps else (DEPLOY / "kubernetes" / "config.yaml").read_text()
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def serving_runtime() -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all((DEPLOY / "kserve" / "serving-runtime.yaml").read_text())


def test_the_runtime_serves_what_kserve_mounts(tmp_path: Path) -> None:
    runtime, settings = serving_runtime()
    (container,) = runtime["spec"]["containers"]
    assert container["name"] == "kserve-container"
    assert runtime["spec"]["volumes"][0]["configMap"]["name"] == settings["metadata"]["name"]
    text = settings["data"]["config.yaml"]
    assert text.count("/mnt/models") == 1
    assert len(parse(text.replace("/mnt/models", str(tmp_path))).listeners) == 2


def configurations() -> dict[str, str]:
    """What every deployment has the daemon do, with a folder of models that exists here."""
    found = {name: yaml.safe_dump(configuration(make())) for name, make in SETS.items()}
    found["image"] = (DEPLOY / "config.yaml").read_text()
    found["kserve"] = [*serving_runtime()][1]["data"]["config.yaml"]
    here = str(ROOT / "examples" / "models")
    return {
        name: re.sub(r"path: (models|/mnt/models)\b", f"path: {here}", text) for name, text in found.items()
    }


@pytest.mark.parametrize("name", configurations())
def test_clients_of_every_dialect_are_served(name: str) -> None:
    """Also of a dialect that listeners speak only where they list it."""
    for listener in parse(configurations()[name]).listeners:
        carried = {each for each, dialect in DIALECTS.items() if listener.transport in dialect.bindings}
        # KServe's version 1 and GraphPipe both answer GET /
        refused = {"graphpipe"} if name == "kserve" else set()
        assert set(listener.dialects) == carried - refused


def test_the_runtime_has_the_protocols_that_it_states() -> None:
    runtime, _ = serving_runtime()
    http, rpc = parse(configurations()["kserve"]).listeners
    assert http.flavors | {"oip": "kserve", "tfserving": "kserve"} == http.flavors
    assert runtime["spec"]["protocolVersions"] == ["v1", "v2", "grpc-v2"]
    assert "tfserving" in http.dialects and "oip" in rpc.dialects


@pytest.mark.parametrize("release", ["bridge", "a" * 63])
def test_a_changed_configuration_is_a_rolling_update(release: str) -> None:
    def checksum(values: dict[str, Any]) -> str:
        metadata = one(render(CHART, release, values), "Deployment")["spec"]["template"]["metadata"]
        return str(metadata["annotations"]["checksum/config"])

    assert checksum({}) == checksum({})
    assert checksum({}) != checksum({"config": {"server": {"drain_secs": 5.0}}})
