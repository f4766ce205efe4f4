"""Every metric and label that the dashboard of Grafana, the alert rules and the autoscaler name is one that a
daemon has; ``promtool`` accepts the rules and the page itself, where it is installed."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families

from interlingua.translator.config import parse
from tests.deploy.charts import render
from tests.e2e.daemon import Daemon
from tests.ports import free_port
from tests.waiting import eventually

DEPLOY = Path(__file__).parents[2] / "deploy"
EXAMPLES = DEPLOY.parent / "examples" / "models"
RULES = DEPLOY / "prometheus" / "rules.yml"

_STRING = re.compile(r'"[^"]*"')
_VARIABLE = re.compile(r"\$\w+|\[[^\]]*\]")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_SELECTED = re.compile(r"(\w+)\s*\{([^}]*)\}")
_NAME = re.compile(r"\b[a-z]\w*_\w+\b(?!\s*\()")
_SCRAPED = {"job", "instance"}
"""Labels that Prometheus adds."""


def expressions() -> Iterator[str]:
    """Every expression in the dashboard and in the rules."""
    dashboard = json.loads((DEPLOY / "grafana" / "interlingua.json").read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (each["expr"] for each in dashboard["annotations"]["list"])
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


def uses(expression: str) -> Iterator[tuple[str, set[str]]]:
    """The metrics in ``expression``, each with the labels that select or group it."""
    text = _VARIABLE.sub("", _STRING.sub("", expression))
    groups = {name.strip() for found in _GROUPING.finditer(text) for name in found[1].split(",")}
    text = _GROUPING.sub("", text)
    selected = {name: set(re.findall(r"\w+(?=\s*[=!])", labels)) for name, labels in _SELECTED.findall(text)}
    for name in set(_NAME.findall(re.sub(r"\{[^}]*\}", "", text))):
        yield name, (groups | selected.get(name, set())) - _SCRAPED


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with everything that has metrics, and a few requests."""
    folder = tmp_path_factory.mktemp("metrics")
    port = free_port()
    identity = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 1]}]}
    identity["outputs"] = [{**identity["inputs"][0], "name": "y"}]
    cached = folder / "models" / "cached"
    shutil.copytree(EXAMPLES / "identity_fp32", cached)
    settings = (cached / "config.pbtxt").read_text().replace("identity_fp32", "cached")
    (cached / "config.pbtxt").write_text(f"{settings}\nresponse_cache {{ enable: true }}\n")
    tokens = folder / "tokens"
    tokens.write_text(f"ann: sha256:{hashlib.sha256(b'secret').hexdigest()}\n")
    tokens.chmod(0o600)
    # the daemon is its own upstream, so that one process has every metric
    config: dict[str, Any] = {
        "server": {"response_cache_bytes": 1 << 20, "strict_readiness": False},
        "listeners": [{"listen": f"127.0.0.1:{port}", "transport": "http"}],
        "admin": {"listen": "127.0.0.1:0"},
        "model_repository": [{"path": str(cached.parent)}],
        "upstreams": {
            "own": {"dialect": "oip", "transport": "http", "urls": [f"http://127.0.0.1:{port}"]},
        },
        "models": {
            "local": {"backend": "identity", "signature": identity},
            "shadow": {"backend": "identity", "signature": identity},
            "remote": {
                "upstream": "own",
                "remote_model": "local",
                "signature": identity,
                "required": False,
            },
        },
        "routes": [
            {"match": {"model": "routed"}, "to": "local"},
            {"match": {"model": "local"}, "to": "local", "mirror": {"to": "shadow"}},
        ],
        "tap": {"path": str(folder / "tap")},
        "auth": {"tokens": str(tokens)},
        # a collector that is not there
        "tracing": {"otlp": f"http://127.0.0.1:{free_port()}", "sample": 1.0},
    }
    daemon = Daemon.start(folder, config)
    try:
        # its series begin with its first request
        tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1.0]}
        url = f"http://127.0.0.1:{port}/v2/models/cached/infer"
        assert requests.post(url, json={"inputs": [tensor]}, timeout=30).status_code == 200
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}]}
        for model in ("local", "remote", "routed"):
            url = f"http://127.0.0.1:{port}/v2/models/{model}/infer"
            headers = {"authorization": "Bearer secret"}
            assert requests.post(url, json=body, headers=headers, timeout=30).status_code == 200, model
        yield daemon
    finally:
        daemon.kill()


@pytest.fixture(scope="module")
def page(daemon: Daemon) -> str:
    """Its ``/metrics``."""
    return requests.get(f"{daemon.admin}/metrics", timeout=30).text


@pytest.fixture(scope="module")
def known(page: str) -> dict[str, set[str]]:
    """The names of the series on the page, each with its labels; of a family without samples only the name."""
    found: dict[str, set[str]] = {"up": set()}
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            found.setdefault(line.split()[2], set())
        elif not line.startswith("#"):
            name, _, labels = line.partition(" ")[0].partition("{")
            found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


def test_expressions_name_metrics_and_labels_that_exist(known: dict[str, set[str]]) -> None:
    wrong = []
    for expression in expressions():
        for name, labels in uses(expression):
            if name not in known or not labels <= (known[name] or labels):
                wrong.append((name, sorted(labels - known.get(name, set()))))
    assert not wrong


def test_the_readers_of_expressions_find_what_they_name() -> None:
    text = 'sum by (le, dialect) (rate(a_bucket{code=~"X|Y", job="$job"}[5m])) / b_c > 1'
    assert dict(uses(text)) == {"a_bucket": {"le", "dialect", "code"}, "b_c": {"le", "dialect"}}
    assert len(list(expressions())) > 40


NIGHT = (
    (DEPLOY.parent / "docs" / "operations.md")
    .read_text()
    .partition("## Four things")[2]
    .partition("\n## ")[0]
)
"""What the page says about the four things that break at night."""


def test_the_page_for_the_night_explains_every_alert() -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    assert set(re.findall(r"`(Interlingua\w+)`", NIGHT)) == alerts


def test_the_page_for_the_night_names_what_exists(daemon: Daemon, known: dict[str, set[str]]) -> None:
    code = re.findall(r"`([^`]+)`", NIGHT)
    metrics = {
        re.split(r"\{", each)[0] for each in code if each.startswith(("interlingua_", "nv_", "process_"))
    }
    assert len(metrics) > 8
    # a histogram has samples of other names
    assert {name for name in metrics if name not in known and f"{name}_bucket" not in known} == set()
    paths = {each for each in code if re.fullmatch(r"/[a-z/]+", each)}
    assert paths >= {"/health/ready", "/upstreams", "/models"}
    for path in paths:
        assert requests.get(f"{daemon.admin}{path}", timeout=30).status_code in (200, 503), path


def test_the_page_of_operations_quotes_the_log() -> None:
    """Records whose text the page has in backticks."""
    page = (DEPLOY.parent / "docs" / "operations.md").read_text()
    quoted = {
        *re.findall(
            r"(?:log record|log lines|the log \(|its log has|logs) `([^`]+)`", " ".join(page.split())
        ),
        *re.findall(r"the log \(`([^`]+)`\)", page),
    }
    assert quoted >= {"model failed to load", "handed over", "option renamed", "reload refused"}
    rooms = (DEPLOY.parent / room for room in ("runtime", "translator"))
    sources = "".join(path.read_text() for room in rooms for path in room.rglob("*.py"))
    assert {text for text in quoted if f'"{text}"' not in sources} == set()


def test_the_autoscaler_names_a_metric_that_exists(known: dict[str, set[str]]) -> None:
    plain = yaml.safe_load((DEPLOY / "kubernetes" / "horizontal-pod-autoscaler.yaml").read_text())
    charted = render(DEPLOY / "helm" / "interlingua", "a", {"autoscaling": {"enabled": True}})
    for scaler in (plain, *(each for each in charted if each["kind"] == "HorizontalPodAutoscaler")):
        names = [each["pods"]["metric"]["name"] for each in scaler["spec"]["metrics"] if "pods" in each]
        assert names and set(names) <= known.keys()


def test_prometheus_reads_what_compose_mounts() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for service in services.values():
        for volume in service.get("volumes", ()):
            assert (DEPLOY / volume.partition(":")[0]).exists(), volume
    scrape = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert scrape["rule_files"] == [RULES.name]
    (job,) = scrape["scrape_configs"]
    config = parse((DEPLOY / "config.yaml").read_text().replace("path: models", "path: examples/models"))
    assert config.admin is not None
    assert job["static_configs"] == [{"targets": [f"interlingua{config.admin.listen}"]}]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian's package prometheus)")
class TestPromtool:
    def test_it_accepts_the_rules_and_the_configuration(self) -> None:
        for command in (["rules", RULES], ["config", DEPLOY / "prometheus" / "prometheus.yml"]):
            ended = subprocess.run(["promtool", "check", *command], capture_output=True, text=True)
            assert ended.returncode == 0, ended.stderr

    def test_it_has_nothing_to_say_of_the_page_but_the_names_of_triton(self, page: str) -> None:
        ended = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True)
        assert [line for line in ended.stderr.splitlines() if not line.startswith("nv_")] == []


def test_prometheus_clients_read_both_formats(daemon: Daemon, page: str) -> None:
    accepted = {"accept": "application/openmetrics-text; version=1.0.0"}
    answer = requests.get(f"{daemon.admin}/metrics", headers=accepted, timeout=30)
    assert answer.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    families = list(openmetrics_families(answer.text))
    assert len(families) == page.count("# TYPE ")
    exemplars = {sample.name for family in families for sample in family.samples if sample.exemplar}
    assert exemplars == {"interlingua_request_duration_seconds_bucket"}


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's package prometheus")
def test_prometheus_scrapes_without_a_warning(daemon: Daemon, tmp_path: Path) -> None:
    target = daemon.admin.removeprefix("http://")
    jobs = [{"job_name": "interlingua", "static_configs": [{"targets": [target]}]}]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": jobs,
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    options = {
        "config.file": tmp_path / "prometheus.yml",
        "storage.tsdb.path": tmp_path / "data",
        "web.listen-address": f"127.0.0.1:{port}",
        "enable-feature": "exemplar-storage",
    }
    log = tmp_path / "log"
    with log.open("wb") as written:
        command = ["prometheus", *(f"--{name}={value}" for name, value in options.items())]
        process = subprocess.Popen(command, stdout=written, stderr=written)
    query = f"http://127.0.0.1:{port}/api/v1"

    def found(path: str, **parameters: str) -> Any:
        try:
            answer = requests.get(f"{query}/{path}", params=parameters, timeout=30)
        except requests.ConnectionError:
            return None
        return answer.json()["data"] if answer.ok else None

    def scraped() -> bool:
        data = found("query", query="up{job='interlingua'}")
        return data is not None and bool(data["result"])

    def exemplars() -> list[Any]:
        name = "interlingua_request_duration_seconds_bucket"
        series = found("query_exemplars", query=name, start="0", end=str(time.time() + 60))
        return [each for one in series or [] for each in one["exemplars"]]

    try:
        eventually(scraped)
        eventually(exemplars)
        assert found("query", query="up")["result"][0]["value"][1] == "1"
        assert all(len(each["labels"]["trace_id"]) == 32 for each in exemplars())
        (scrape,) = found("targets")["activeTargets"]
        assert (scrape["health"], scrape["lastError"]) == ("up", "")
        wrong = [line for line in log.read_text().splitlines() if re.search("level=(warn|error)", line)]
        assert not wrong
    finally:
        process.kill()
        process.wait()
