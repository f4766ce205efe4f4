"""What the configuration states about Ray, and what Serve gets of it."""

from __future__ import annotations

from typing import Any

import pytest

from interlingua.runtime.backends import BACKENDS
from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.ray_serve.options import ClusterOptions
from interlingua.runtime.ray_serve.start import environment
from interlingua.runtime.repository.files import ModelSource, load_model, sequence_idle_secs
from interlingua.translator.assembly import local_models
from interlingua.translator.config import parse
from interlingua.translator.config.document import ConfigError
from tests.e2e.daemon import ROOT

DIGITS = ROOT / "examples" / "models" / "digits"


def source(model: str, ray: str = "{}") -> ModelSource:
    text = f"""
listeners: [{{listen: "127.0.0.1:0", transport: http}}]
ray: {ray}
models: {{digits: {{backend: ray, path: "{DIGITS}", {model}}}}}
"""
    ((found, place),) = local_models(parse(text))
    assert place == ("models", "digits")
    return found


def options(model: str, ray: str = "{}") -> Any:
    found = source(model, ray).ray
    assert found is not None
    return found


def test_the_defaults() -> None:
    assert options("").serve() == {
        "num_replicas": 1,
        "ray_actor_options": {"num_cpus": 1.0, "num_gpus": 0.0},
        "max_ongoing_requests": 100,
        "max_queued_requests": 1000,
        "graceful_shutdown_timeout_s": 60.0,
    }
    # the files decide about the backend of the replica
    assert source("").backend == ""


def test_every_option_reaches_serve() -> None:
    found = options(
        "replicas: {min: 1, max: 8, target_ongoing: 4, up_delay_secs: 1, down_delay_secs: 2, window_secs: 3}, "
        "resources: {cpus: 0.5, gpus: 0.25, memory_bytes: 1000, custom: {tpu: 1}}, "
        "placement: {max_per_node: 2, labels: {zone: a}}, max_ongoing_requests: 7, max_queued_requests: -1",
        "{address: '10.0.0.1:6379', namespace: n, shared: true, request_timeout_secs: 90}",
    )
    assert found.cluster == ClusterOptions("10.0.0.1:6379", "n", shared=True, request_timeout_secs=90)
    assert found.serve() == {
        "autoscaling_config": {
            "min_replicas": 1,
            "initial_replicas": 1,
            "max_replicas": 8,
            "target_ongoing_requests": 4.0,
            "upscale_delay_s": 1.0,
            "downscale_delay_s": 2.0,
            "look_back_period_s": 3.0,
        },
        "ray_actor_options": {
            "num_cpus": 0.5,
            "num_gpus": 0.25,
            "memory": 1000,
            "resources": {"tpu": 1.0},
            "label_selector": {"zone": "a"},
        },
        "max_ongoing_requests": 7,
        "max_queued_requests": -1,
        "graceful_shutdown_timeout_s": 90.0,
        "max_replicas_per_node": 2,
    }


@pytest.mark.parametrize(
    ("model", "ray", "key"),
    [
        ("replicas: 0", "{}", "replicas"),
        ("replicas: {min: 3, max: 2}", "{}", "replicas.max: must not be less than min"),
        ("replicas: {min: 0, max: 2}", "{}", "replicas.min"),
        ("replicas: {max: 2, target: 3}", "{}", "target"),
        ("resources: {cpu: 1}", "{}", "resources.cpu: unknown key"),
        ("resources: {gpus: -1}", "{}", "resources.gpus"),
        ("placement: {max_per_node: 0}", "{}", "placement.max_per_node"),
        ("max_queued_requests: -2", "{}", "max_queued_requests"),
        ("device: cpu", "{}", "device: is of this machine"),
        ("", "{address: 'a:1', cpus: 2}", "ray.cpus: is for address: local"),
        ("", "{bind: nowhere}", "ray.bind"),
    ],
)
def test_errors_name_the_key(model: str, ray: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        source(model, ray)
    assert key in str(caught.value)


@pytest.mark.parametrize("key", ["replicas: 2", "resources: {}", "placement: {}", "max_ongoing_requests: 1"])
def test_the_keys_are_for_ray_alone(key: str) -> None:
    text = f"""
listeners: [{{listen: "127.0.0.1:0", transport: http}}]
models: {{digits: {{backend: onnxruntime, path: "{DIGITS}", {key}}}}}
"""
    with pytest.raises(ConfigError, match="only a model with 'backend: ray' has this key"):
        parse(text)


def test_a_repository_cannot_name_the_backend(tmp_path: Any) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text('backend: "ray"')
    with pytest.raises(LoadError, match="is for models under 'models'"):
        load_model(ModelSource("m", tmp_path / "m"))


def test_an_ensemble_does_not_run_on_ray(tmp_path: Any) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(
        'platform: "ensemble" ensemble_scheduling { step { model_name: "x" model_version: -1 '
        'input_map { key: "A" value: "A" } output_map { key: "B" value: "B" } } } '
        'input { name: "A" data_type: TYPE_INT32 dims: 1 } output { name: "B" data_type: TYPE_INT32 dims: 1 }'
    )
    with pytest.raises(LoadError, match="ensemble"):
        sequence_idle_secs(ModelSource("m", tmp_path / "m"))
    assert sequence_idle_secs(ModelSource("digits", DIGITS)) == 0


def test_ray_sends_no_reports_and_a_local_cluster_is_for_this_machine() -> None:
    assert environment(ClusterOptions())["RAY_USAGE_STATS_ENABLED"] == "0"
    assert environment(ClusterOptions("a:1"))["RAY_USAGE_STATS_ENABLED"] == "0"
    loopback = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    assert loopback in environment(ClusterOptions())
    assert loopback not in environment(ClusterOptions(bind="10.0.0.1"))
    assert loopback not in environment(ClusterOptions("a:1"))


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlingua.runtime.backends.find_spec", lambda name: None)
    assert "pip install 'interlingua[ray]'" in BACKENDS["ray"].missing()
