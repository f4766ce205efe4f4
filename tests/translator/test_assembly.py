"""What the configuration describes, put together: the parts that no other test reaches."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from interlingua.protocols.oip.metadata_json import parse_object, read_model_config
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import HttpRequest
from interlingua.runtime.repository.files import Loaded
from interlingua.runtime.scheduling.policy import Limits
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.schemas import InferenceError, ModelControl, Operation
from interlingua.translator.assembly import Assembly, _source, assemble, load_local, local_models
from interlingua.translator.config import parse
from interlingua.translator.config.context import Installation
from tests.runtime.onnx_models import write_identity

BOTH = frozenset({"http", "grpc"})
INSTALLATION = Installation(serves={"oip": BOTH}, calls={"oip": BOTH}, backends={"identity": False})


def assembled(**document: object) -> Assembly:
    config = {"listeners": [{"listen": "127.0.0.1:0", "transport": "http"}], **document}
    return assemble(parse(yaml.safe_dump(config), "c.yaml", INSTALLATION), Loaded())


@pytest.mark.parametrize(("flavor", "status"), [("triton", 404), ("kserve", None), ("mlserver", 404)])
def test_a_listener_follows_its_flavor(flavor: str, status: int | None) -> None:
    listener = {"listen": "127.0.0.1:0", "transport": "http", "flavors": {"oip": flavor}}
    assembly = assembled(listeners=[listener])
    # KServe alone lists its models there
    answer = (
        assembly.pipeline(assembly.config.listeners[0])
        .handlers["http"]
        .head(HttpRequest("GET", "/v2/models"))
    )
    assert (answer and answer.status) == status


@pytest.mark.parametrize("flavor", ["auto", "triton", "kserve", "mlserver"])
@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_the_calls_of_an_upstream(transport: str, flavor: str) -> None:
    told = {"dialect": "oip", "transport": transport, "urls": ["127.0.0.1:1"], "flavor": flavor}
    assembly = assembled(upstreams={"there": told}, models={"m": {"upstream": "there"}})
    upstream, binding = assembly.upstreams["there"], DIALECTS["oip"].bindings[transport]
    flavors = binding.call_flavors
    assert upstream._calls is flavors.get(flavor, binding.calls)
    assert upstream._flavors == (flavors if flavor == "auto" else {})
    assert upstream.offers(Operation.MODEL_LOAD)


@pytest.mark.parametrize(("control", "controlled"), [("none", False), ("explicit", True)])
def test_who_controls_the_models_of_an_upstream(control: str, controlled: bool) -> None:
    told = {"dialect": "oip", "transport": "http", "urls": ["127.0.0.1:1"], "control": control}
    assembly = assembled(upstreams={"there": told}, models={"m": {"upstream": "there"}})
    target = assembly.service.router.models["m"]
    assert isinstance(target, UpstreamModel)
    assert target.controlled is controlled


@pytest.mark.parametrize(
    ("told", "remote"), [({}, "m"), ({"remote_model": ""}, ""), ({"remote_model": "n"}, "n")]
)
def test_a_models_remote_name(told: dict[str, str], remote: str) -> None:
    there = {"dialect": "oip", "transport": "http", "urls": ["127.0.0.1:1"]}
    assembly = assembled(upstreams={"there": there}, models={"m": {"upstream": "there", **told}})
    target = assembly.service.router.models["m"]
    assert isinstance(target, UpstreamModel)
    assert target._remote == remote


async def test_what_a_repository_lets_clients_do(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    config = (
        b'{"backend":"identity","input":[{"name":"x","data_type":"TYPE_INT8","dims":[1]}],'
        b'"output":[{"name":"y","data_type":"TYPE_INT8","dims":[1]}]}'
    )
    repository = {"path": str(tmp_path), "name": "mine", "control": "explicit", "load": []}
    given = ModelControl("mine", read_model_config(parse_object(config)))
    for overrides in ("none", "config"):
        assembly = assembled(model_repository=[{**repository, "overrides": overrides}])
        if overrides == "none":
            with pytest.raises(InferenceError, match="does not allow clients to give a model's config"):
                await assembly.service.catalog.load("m", given)
        else:
            await assembly.service.catalog.load("m", given)
            assert "m" in assembly.service.router.models
        await assembly.close()


def test_the_limits_of_a_model() -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1]}
    plain = {"backend": "identity", "signature": {"inputs": [tensor], "outputs": [tensor]}}
    stated = {"max_queue_requests": 5, "max_queue_bytes": 0, "max_concurrent_requests": 7}
    config = assembled(models={"plain": plain, "stated": {**plain, **stated}}).config
    limits = {name: _source(name, model, Limits()).limits for name, model in config.models.items()}
    assert limits == {"plain": Limits(), "stated": Limits(5, 0, 7)}


def test_the_longest_inline_run_of_a_model_is_its_own_or_the_servers(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_identity(tmp_path / name / "1" / "model.onnx")
    document = {
        "server": {"max_inline_run_us": 50},
        "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
        "model_repository": [{"path": str(tmp_path)}],
        "models": {
            "b": {"backend": "onnxruntime", "path": str(tmp_path / "b"), "max_inline_run_us": 0},
        },
    }
    config = parse(yaml.safe_dump(document))
    loaded = load_local(config)
    inline = {name: model.loaded["1"].inline for name, model in loaded.models.items()}
    assert inline["b"] is None
    assert inline["a"] is not None
    stated = {source.name: source for source, _ in local_models(config)}
    assert stated["a"].limits == Limits(inline_run_us=50)
    assert stated["b"].limits == Limits(inline_run_us=0)
    repository = assemble(config, loaded).service.catalog.homes["a"]
    assert repository.source("a") == stated["a"], "a load finds an unchanged model unchanged"


def test_pickles_are_permitted_by_repository_or_by_model(tmp_path: Path) -> None:
    for name in ("permitted/a", "permitted/b", "other/c"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.joblib").write_bytes(b"")
    model = {"backend": "sklearn", "path": str(tmp_path / "other" / "c")}
    document = {
        "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
        "model_repository": [
            {"path": str(tmp_path / "permitted"), "allow_pickle": True},
            {"path": str(tmp_path / "other")},
        ],
        # a model of the configuration does not follow its repository
        "models": {
            "b": {**model, "path": str(tmp_path / "permitted" / "b")},
            "d": {**model, "allow_pickle": True},
        },
    }
    config = parse(yaml.safe_dump(document))
    permitted = {source.name: source.allow_pickle for source, _ in local_models(config)}
    assert permitted == {"a": True, "b": False, "c": False, "d": True}
    repositories = assemble(config, Loaded()).service.catalog.repositories.by_precedence
    assert [each.allow_pickle for each in repositories] == [False, True]
