"""The manifests for Kubernetes, the chart, the runtime for KServe: valid, consistent, and of configurations that
the daemon accepts."""

from __future__ import annotations

import importlib.util
import re
import subprocess
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

PEERS: dict[str, Any] = {
    "listeners": [
        *yaml.safe_load((CHART / "values.yaml").read_text())["config"]["listeners"],
        {
            "listen": ":8009",
            "transport": "grpc",
            "dialects": ["oip"],
            "allow": {"inference": ["10.0.0.0/8"]},
        },
    ],
    "peers": {"listener": ":8009", "urls": ["bridge-peers:8009"]},
}
EVERYTHING: dict[str, Any] = {
    "config": PEERS,
    "peers": {"enabled": True},
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
        *(each["spec"]["selector"] for each in objects if each["kind"] == "Service"),
        one(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        *(each["spec"]["podSelector"]["matchLabels"] for each in objects if each["kind"] == "NetworkPolicy"),
    ]
    for selector in selectors:
        assert selector and selector.items() <= labels


def test_ports_have_names_that_exist(objects: list[dict[str, Any]]) -> None:
    (container,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    named = {port["name"]: port["containerPort"] for port in container["ports"]}
    services = [each for each in objects if each["kind"] == "Service"]
    used = [port["targetPort"] for each in services for port in each["spec"]["ports"]]
    used += [container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")]
    for policy in (each for each in objects if each["kind"] == "NetworkPolicy"):
        used += [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    assert set(used) <= named.keys()
    config = configuration(objects)
    listens = [each["listen"] for each in (*config["listeners"], config["admin"])]
    assert sorted(listens) == sorted(f":{number}" for number in named.values())


def test_peers_find_each_other(objects: list[dict[str, Any]]) -> None:
    peers = parse(yaml.safe_dump(configuration(objects))).peers
    headless = [each for each in objects if each["kind"] == "Service" and "clusterIP" in each["spec"]]
    if peers is None:
        assert not headless
        return
    (service,) = headless
    assert service["spec"]["clusterIP"] == "None"
    # a daemon is not ready until the others know it
    assert service["spec"]["publishNotReadyAddresses"] is True
    (port,) = service["spec"]["ports"]
    assert peers.urls == (f"{service['metadata']['name']}:{port['port']}",)
    rules = [each["spec"] for each in objects if each["kind"] == "NetworkPolicy"]
    for rule in rules:
        (own,) = (each for each in rule["ingress"] if {"port": "peers"} in each["ports"])
        assert own["from"] == [{"podSelector": {"matchLabels": service["spec"]["selector"]}}]
        assert any(each["to"] == own["from"] for each in rule["egress"])


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
    config = parse(configurations()[name])
    for listener in config.listeners:
        if config.peers is not None and listener.listen == config.peers.listener:
            continue  # no client connects there
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


def test_the_transformer_reaches_its_predictor(tmp_path: Path) -> None:
    """KServe adds arguments to the container of a transformer."""
    text = (DEPLOY / "kserve" / "inference-service.yaml").read_text()
    service, settings = yaml.safe_load_all(text)
    assert set(service) == {"apiVersion", "kind", "metadata", "spec"}
    assert service["apiVersion"] == "serving.kserve.io/v1beta1" and service["kind"] == "InferenceService"
    transformer, model = service["spec"]["transformer"], service["spec"]["predictor"]["model"]
    assert model["protocolVersion"] == "v2" and model["modelFormat"]["name"]
    (container,) = transformer["containers"]
    assert container["name"] == "kserve-container" and "args" not in container
    assert {"name": "PROTOCOL", "value": "v2"} in container["env"]
    assert transformer["volumes"][0]["configMap"]["name"] == settings["metadata"]["name"]
    # the command as KServe completes it, with a program that prints what it gets
    program = tmp_path / "environment" / "bin" / "interlingua"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$MODEL $PREDICTOR $@"\n')
    program.chmod(0o755)
    added = ["--model_name", "digits", "--predictor_host", "digits-predictor.default", "--http_port", "8080"]
    ran = subprocess.run([*container["command"], *added], cwd=tmp_path, capture_output=True, text=True)
    name, host, *arguments = ran.stdout.split()
    assert (name, host) == ("digits", "digits-predictor.default")
    assert arguments == ["serve", "-c", "/etc/interlingua/config.yaml"]
    config = settings["data"]["config.yaml"].replace("${MODEL}", name).replace("${PREDICTOR}", host)
    found = parse(config)
    assert found.upstreams["predictor"].urls == (f"http://{host}",)
    (port,) = container["ports"]
    assert found.listeners[0].listen == f":{port['containerPort']}" == ":8080"


@pytest.mark.parametrize("release", ["bridge", "a" * 63])
def test_a_changed_configuration_is_a_rolling_update(release: str) -> None:
    def checksum(values: dict[str, Any]) -> str:
        metadata = one(render(CHART, release, values), "Deployment")["spec"]["template"]["metadata"]
        return str(metadata["annotations"]["checksum/config"])

    assert checksum({}) == checksum({})
    assert checksum({}) != checksum({"config": {"server": {"drain_secs": 5.0}}})
