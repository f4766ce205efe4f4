"""What stands at the operator's address, asked through its handler, with models of every kind."""

from __future__ import annotations

import asyncio
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from interlingua.protocols.wire import HttpAnswer, HttpRequest, parts_of
from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.files import Loaded, ModelSource, load_model
from interlingua.runtime.scheduling.policy import Limits
from interlingua.schemas import InferenceError, InferRequest, ListenerAddress, SharedMemoryRegion, Tensor
from interlingua.translator.admin import models
from interlingua.translator.admin.handler import AdminHandler, document, plain
from interlingua.translator.admin.metrics import Family, Sample
from interlingua.translator.admin.site import Site
from interlingua.translator.assembly import Assembly, assemble, load_local
from interlingua.translator.config import parse
from interlingua.translator.config.context import Installation
from tests.runtime.onnx_models import write_identity

HOSTILE = "<img src=x onerror=alert(1)>\"'&\\"
HTTP = frozenset({"http"})
INSTALLATION = Installation(serves={"oip": HTTP}, calls={"oip": HTTP}, backends={"identity": False})
SIGNATURE = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
}


def assembled(loaded: Loaded | None = None, **document: Any) -> Assembly:
    listeners = [{"listen": "127.0.0.1:0", "transport": "http"}]
    text = yaml.safe_dump({"listeners": listeners, "admin": {"listen": "127.0.0.1:0"}, **document})
    config = parse(text, "c.yaml", INSTALLATION)
    assembly = assemble(config, load_local(config) if loaded is None else loaded)
    for listener in config.listeners:
        assembly.pipeline(listener)
    assembly.service.listeners = (ListenerAddress("http", "127.0.0.1:4711", ("oip",)),)
    return assembly


def full(**more: Any) -> Assembly:
    return assembled(
        **more,
        models={
            HOSTILE: {"backend": "identity", "signature": SIGNATURE},
            "far": {"upstream": "there", "required": False, "signature": SIGNATURE},
        },
        upstreams={
            "there": {
                "dialect": "oip",
                "transport": "http",
                "urls": ["127.0.0.1:9", "127.0.0.1:10"],
                "max_concurrency": 3,
                "probe_interval_secs": 0,
            }
        },
        server={"response_cache_bytes": 1000},
    )


def handler(site: Site) -> AdminHandler:
    return AdminHandler(site.pages())


async def ask(site: AdminHandler, path: str, method: str = "GET") -> HttpAnswer:
    request = HttpRequest(method, path)
    return site.head(request) or await site.serve(request)


async def text_of(site: AdminHandler, path: str, status: int = 200) -> str:
    answer = await ask(site, path)
    assert answer.status == status
    return b"".join(map(bytes, parts_of(answer))).decode()


async def json_of(site: AdminHandler, path: str, status: int = 200) -> Any:
    return orjson.loads(await text_of(site, path, status))


async def metrics_of(site: AdminHandler) -> dict[tuple[str, str], float]:
    """By name, and by the values of the labels in alphabetical order of the labels."""
    text = await text_of(site, "/metrics")
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            # the parser gives every counter the suffix, which Triton's have not
            told = sample.name if f"\n{sample.name}" in text else sample.name.removesuffix("_total")
            found[told, ",".join(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


async def infer(assembly: Assembly, model: str) -> None:
    tensor = Tensor.from_numpy("x", np.zeros((1, 2), np.float32))
    await assembly.service.router.models[model].infer(InferRequest(model, (tensor,)))


# --- health


async def test_health_of_a_server_that_is_ready() -> None:
    assembly = full()
    site = handler(assembly.site())
    assert await json_of(site, "/health/ready") == {"ready": True, "reasons": []}
    await assembly.close()


async def test_readiness_tells_every_reason() -> None:
    assembly = assembled(Loaded(failed={"a": LoadError("no file"), "b": LoadError("bad file")}))
    told = await json_of(handler(assembly.site()), "/health/ready", 503)
    assert told == {
        "ready": False,
        "reasons": ["model 'a' could not be loaded: no file", "model 'b' could not be loaded: bad file"],
    }


@pytest.mark.parametrize(
    ("leave", "reason"), [(True, "the server is shutting down"), (False, "the server is offline")]
)
async def test_readiness_is_what_the_dialects_say(leave: bool, reason: str) -> None:
    assembly = full()
    site = handler(assembly.site())
    if leave:
        assembly.service.leave()
    else:
        assembly.service.switch(False)
    assert await json_of(site, "/health/ready", 503) == {"ready": False, "reasons": [reason]}
    found = await metrics_of(site)
    assert (found["interlingua_draining", ""], found["interlingua_online", ""]) == (
        float(leave),
        float(leave),
    )
    await assembly.close()


# --- metrics of the process


async def test_tasks_and_shared_memory_are_counted() -> None:
    assembly = full()
    site = handler(assembly.site())
    names = ("event_loop_tasks", "shared_memory_regions", "shared_memory_bytes")
    before = await metrics_of(site)
    waiting = asyncio.create_task(asyncio.sleep(60))
    path = Path(f"/dev/shm/interlingua_test_{os.getpid()}_counted")
    path.write_bytes(bytes(64))
    try:
        assembly.service.shared_memory.register(SharedMemoryRegion("r", f"/{path.name}", 0, 64))
        after = await metrics_of(site)
    finally:
        path.unlink()
    grown = [after[f"interlingua_{name}", ""] - before[f"interlingua_{name}", ""] for name in names]
    assert grown == [1, 1, 64]
    waiting.cancel()
    await assembly.close()


# --- paths and methods


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/v2/health/live", 404),
        ("POST", "/nowhere", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/", 405),
        ("OPTIONS", "/models", 405),
        ("HEAD", "/metrics", 200),
    ],
)
async def test_only_reading_and_only_what_there_is(method: str, path: str, status: int) -> None:
    assembly = full()
    answer = await ask(handler(assembly.site()), path, method)
    assert answer.status == status
    assert (("allow", "GET, HEAD") in answer.headers) == (status == 405)
    await assembly.close()


async def test_no_page_takes_a_body() -> None:
    site = AdminHandler({"/": lambda: asyncio.sleep(0, plain(200, "fine"))})
    request = HttpRequest("GET", "/")
    assert site.head(request) is None
    assert request.max_body_bytes == 0


async def test_a_failing_source_is_reported_in_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    assembly = full()

    def broken() -> list[Family]:
        raise RuntimeError("secret")

    assembly.sources.metrics.append(broken)
    site = handler(assembly.site())
    assert await text_of(site, "/metrics", 500) == "internal error; the server's log has the details\n"
    assert "secret" in caplog.text
    await assembly.close()


async def test_sources_of_others_are_shown() -> None:
    assembly = full()

    async def report() -> dict[str, int]:
        return {"hits": 3}

    assembly.sources.metrics.append(lambda: [Family("mine_total", "counter", "", [Sample(7)])])
    assembly.sources.reports["mirror"] = report
    site = handler(assembly.site())
    assert (await metrics_of(site))["mine_total", ""] == 7
    assert await json_of(site, "/mirror") == {"hits": 3}
    await assembly.close()


def test_what_has_no_bytes_does_not_end_a_report() -> None:
    (body,) = parts_of(document({"m\ud800": ["\udfff"]}))
    assert orjson.loads(bytes(body)) == {"m?": ["?"]}


# --- reports and metrics


async def test_reports_of_models_and_upstreams() -> None:
    assembly = full()
    site = handler(assembly.site())
    for _ in range(3):
        await infer(assembly, HOSTILE)
    with pytest.raises(InferenceError):
        await infer(assembly, "far")
    models = await json_of(site, "/models")
    (version,) = models[HOSTILE]["versions"]
    assert (version["requests"], version["inferences"], version["executions"]) == (3, 3, 3)
    assert version["failures"] == {}
    assert 0 < version["latency_ms"]["0.5"] <= version["latency_ms"]["0.99"]
    assert (models["far"]["state"], models["far"]["runs"]) == ("UNAVAILABLE", "upstream there")
    assert models["far"]["versions"][0]["failures"] == {"UNAVAILABLE": 1}
    assert "cannot be reached" in models["far"]["reason"]
    upstreams = await json_of(site, "/upstreams")
    assert upstreams["there"]["limited"] == {"under_way": 0, "waiting": 0, "bytes": 0}
    assert [
        (each["url"], each["state"], each["breaker"], each["ejections"])
        for each in upstreams["there"]["servers"]
    ] == [("127.0.0.1:9", "ejected", "open", 1), ("127.0.0.1:10", "ejected", "open", 1)]
    server = await json_of(site, "/server")
    assert server["listeners"][0]["address"] == "127.0.0.1:4711"
    assert await json_of(site, "/mirror") == {"different": False, "mirrors": []}
    await assembly.close()


async def test_metrics_under_tritons_names() -> None:
    assembly = full()
    site = handler(assembly.site())
    await infer(assembly, HOSTILE)
    with pytest.raises(InferenceError):
        await infer(assembly, "far")
    with pytest.raises(InferenceError):
        await assembly.service.router.models[HOSTILE].infer(InferRequest(HOSTILE, ()))
    found = await metrics_of(site)
    ours = f"{HOSTILE},1"
    assert found["nv_inference_request_success", ours] == 1
    assert found["nv_inference_count", ours] == found["nv_inference_exec_count", ours] == 1
    assert found["nv_inference_pending_request_count", ours] == 0
    for part in ("request", "queue", "compute_input", "compute_infer", "compute_output"):
        assert found[f"nv_inference_{part}_duration_us", ours] >= 0
    failures = {key: value for (name, key), value in found.items() if name == "nv_inference_request_failure"}
    assert failures == {
        **{f"{HOSTILE},{reason},1": 0.0 for reason in _REASONS},  # the model never saw it
        **{f"far,{reason},1": float(reason == "REJECTED") for reason in _REASONS},
    }
    assert found["interlingua_model_ready", ours] == 1
    assert found["interlingua_model_ready", "far,1"] == 0
    assert (found["interlingua_models_ready", ""], found["interlingua_models_known", ""]) == (1, 2)
    assert found["interlingua_upstream_server_ejected", "127.0.0.1:9,there"] == 1
    assert found["interlingua_upstream_server_failures_total", "127.0.0.1:10,there"] == 1
    assert found["interlingua_upstream_limited_requests", "waiting,there"] == 0
    assert found["interlingua_response_cache_limit_bytes", ""] == 1000
    assert found["process_resident_memory_bytes", ""] > 1 << 20
    assert found["process_open_fds", ""] > 3
    assert 0 <= found["nv_cpu_utilization", ""] <= 1
    await assembly.close()


_REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")


async def test_metrics_of_inline_runs_are_those_of_models_that_may_have_any(tmp_path: Path) -> None:
    loaded = []
    for name, limits in (("a", Limits()), ("b", Limits(inline_run_us=0))):
        loaded.append(load_model(ModelSource(name, write_identity(tmp_path / f"{name}.onnx"), limits=limits)))
    inline = loaded[0].loaded["1"].inline
    assert inline is not None
    inline.runs, inline.returns = 7, 2
    families = {
        each.name: each for each in models.families(ModelCatalog({each.name: each for each in loaded}))
    }
    for name, value in (("runs", 7), ("returns", 2)):
        (sample,) = families[f"interlingua_inline_{name}_total"].samples
        assert (sample.value, sample.labels) == (value, {"model": "a", "version": "1"})
    for model in loaded:
        await model.close()


async def test_metrics_of_the_cache_are_those_of_models_that_cache(tmp_path: Path) -> None:
    for name, caches in (("caching", "true"), ("not_caching", "false")):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(
            'backend: "identity" input { name: "x" data_type: TYPE_FP32 dims: [ -1, 2 ] } '
            f'output {{ name: "y" data_type: TYPE_FP32 dims: [ -1, 2 ] }} response_cache {{ enable: {caches} }}'
        )
    assembly = assembled(model_repository=[{"path": str(tmp_path)}], server={"response_cache_bytes": 100_000})
    for _ in range(3):
        await infer(assembly, "caching")
        await infer(assembly, "not_caching")
    found = await metrics_of(handler(assembly.site()))
    assert found["nv_cache_num_hits_per_model", "caching,1"] == 2
    assert found["nv_cache_num_misses_per_model", "caching,1"] == 1
    assert found["nv_cache_hit_duration_per_model", "caching,1"] >= 0
    assert ("nv_cache_num_hits_per_model", "not_caching,1") not in found
    assert found["nv_inference_request_success", "caching,1"] == 3
    assert found["nv_inference_exec_count", "caching,1"] == 1
    assert found["interlingua_response_cache_entries", ""] == 1
    # of the whole cache, all gauges at Triton
    counts = {
        name: found[f"nv_cache_num_{name}", ""]
        for name in ("entries", "lookups", "hits", "misses", "evictions")
    }
    assert counts == {"entries": 1, "lookups": 3, "hits": 2, "misses": 1, "evictions": 0}
    assert 0 < found["nv_cache_util", ""] < 1
    assert found["nv_cache_lookup_duration", ""] >= 0 <= found["nv_cache_insertion_duration", ""]
    await assembly.close()


async def test_the_labels_of_failures_come_in_tritons_order() -> None:
    assembly = full()
    text = await text_of(handler(assembly.site()), "/metrics")
    lines = [line for line in text.splitlines() if line.startswith("nv_inference_request_failure{")]
    assert lines
    for line in lines:
        assert re.findall(r'[{,](\w+)="', line) == ["model", "reason", "version"]
    types = dict(re.findall(r"^# TYPE (nv_cache_\w+) (\w+)$", text, re.MULTILINE))
    assert types and set(types.values()) == {"gauge"}
    await assembly.close()


# --- the page


class Page(HTMLParser):
    """What a browser would make of the page: elements with their attributes, texts by element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "polyline":
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


async def test_the_page_is_whole_and_escapes_everything() -> None:
    assembly = full()
    site = handler(assembly.site())
    await infer(assembly, HOSTILE)
    with pytest.raises(InferenceError):
        await infer(assembly, "far")
    page = Page(await text_of(site, "/plain"))
    assert not page.open
    assert not page.all("img")
    assert ("th", HOSTILE) in page.texts
    assert ("p", "Ready") in page.texts
    assert [text for tag, text in page.texts if tag == "h2"] == [
        "Listeners",
        "Models",
        "Upstreams",
        "Routes",
        "Mirrors",
    ]
    assert ("td", "ejected") in page.texts
    await assembly.close()


async def test_the_page_loads_nothing_remote_and_needs_no_sight() -> None:
    assembly = full()
    page = Page(await text_of(handler(assembly.site()), "/plain"))
    for _, attributes in page.elements:
        assert not attributes.keys() & {"src", "style", "onclick", "onload"}
        assert "://" not in (attributes.get("href") or "")
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(attributes["scope"] in ("row", "col") for attributes in page.all("th"))
    assert all(attributes["aria-label"] for attributes in page.all("svg"))
    pages = assembly.site().pages().keys() | {"/health/live"}
    others = {"/", "/plain", "/view", "/history"}
    linked = {path for path in pages if not path.startswith("/dashboard/")} - others
    assert {f"/{attributes['href']}" for attributes in page.all("a")} == linked
    for region in page.all("div"):
        if region.get("role") == "region":
            assert region["aria-labelledby"] in ids
            assert region["tabindex"] == "0"
    assert [attributes["lang"] for attributes in page.all("html")] == ["en"]
    await assembly.close()


async def test_the_policy_permits_the_pages_own_style_and_nothing_else() -> None:
    import base64
    import hashlib

    assembly = full()
    answer = await ask(handler(assembly.site()), "/plain")
    headers = dict(answer.headers)
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["cache-control"] == "no-store"
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    text = bytes(parts_of(answer)[0]).decode()
    inside = text.split("<style>", 1)[1].split("</style>", 1)[0]
    digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy
    assert "script-src" not in policy and "<script" not in text
    await assembly.close()


async def test_what_refreshes_the_page_is_what_it_was_made_of() -> None:
    assembly = full()
    site = handler(assembly.site())
    for _ in range(2):
        await infer(assembly, HOSTILE)
    view = await json_of(site, "/view")
    page = Page(await text_of(site, "/plain"))
    texts = {text for _, text in page.texts}
    shown = {cell[0] for table in view["tables"] for row in table["rows"] for cell in row if cell[0]}
    assert shown <= texts
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    assert {each["id"] for each in (*view["tables"], *view["charts"])} <= ids
    assert {f"fact-{place}" for place in range(len(view["facts"]))} <= ids
    for table in view["tables"]:
        assert set(table["numeric"]) <= set(table["columns"])
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
    await assembly.close()


async def test_a_page_does_not_wait_for_an_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlingua.translator.admin.overview._PATIENCE_SECS", 0.01)
    assembly = full()
    answered = asyncio.Event()

    async def slow(names: Any) -> Any:
        from interlingua.schemas import Readiness

        await answered.wait()
        return Readiness(True)

    monkeypatch.setattr(type(assembly.service.catalog), "readiness", lambda self, names: slow(names))
    site = assembly.site()
    pages = handler(site)
    assert (await json_of(pages, "/view"))["state"] == [
        "Not ready: not known yet: waiting for an upstream",
        "bad",
    ]
    answered.set()
    await asyncio.sleep(0)
    assert (await json_of(pages, "/view"))["state"] == ["Ready", "good"]
    await site.close()
    await assembly.close()


async def test_mirrors_are_shown() -> None:
    assembly = full()
    mirror = {
        "name": "old to new",
        "to": HOSTILE,
        "percent": 10.0,
        "compared": 5,
        "equal": 3,
        "different": 2,
        "held": {"requests": 1, "bytes": 9},
        "dropped": {"queue": 4},
        "failures": {"other_error": {"count": 1, "last": "<b>"}},
        "outputs": {
            "y": {"different": 2, "max_absolute": 0.25},
            "z": {"different": 1, "max_absolute": float("inf")},
            "w": {"different": 0, "max_absolute": 9.0},
        },
    }
    assembly.sources.reports["mirror"] = lambda: {"different": True, "mirrors": [mirror]}
    view = await json_of(handler(assembly.site()), "/view")
    tables = {table["id"]: table for table in view["tables"]}
    (row,) = tables["mirrors"]["rows"]
    cells = dict(zip(tables["mirrors"]["columns"], row, strict=True))
    assert cells["Different"] == ["2", "warn"]
    assert (cells["Failed"][0], cells["Dropped"][0], cells["Waiting"][0]) == ("1", "4", "1")
    assert cells["Worst output"][0] == "z: off by inf"
    await assembly.close()


async def test_routes_are_shown() -> None:
    split = [{"to": HOSTILE, "weight": 3}, {"to": "far", "weight": 1}]
    match = {"model": "a*", "headers": {"x-v": "2"}}
    routes = [{"match": match, "split": split, "fallback": HOSTILE}, {"to": "far"}]
    assembly = full(routes=routes)
    for model in (HOSTILE, HOSTILE, HOSTILE, "far"):
        assembly.service.router.routes[0].count(model)
    pages = handler(assembly.site())
    view = await json_of(pages, "/view")
    (table,) = (table for table in view["tables"] if table["id"] == "routes")
    assert [[text for text, _ in row] for row in table["rows"]] == [
        ["1", "model a*, headers x-v 2", "4", f"{HOSTILE}: 3 (75.0 %), far: 1 (25.0 %)", HOSTILE, "0"],
        ["2", "model *", "0", "far: 0", "", "0"],
    ]
    assert (await metrics_of(pages))["interlingua_route_requests_total", f"a*,1,{HOSTILE}"] == 3
    await assembly.close()
