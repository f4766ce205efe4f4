"""The server and its models as YAML, in the layout of the original servers' two files.

``inference.yml`` has the models and the dag, whose one node is the default model; ``server.yml`` has the
interface and its limits, null for those that we lack. A model with several versions has several entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from textwrap import indent
from typing import Any

import yaml

from interlingua.protocols.grps.options import PredictOptions
from interlingua.schemas import Deployment, ListenerAddress, ModelState, ModelStatus
from interlingua.schemas.model_config import MODEL_CONFIG

Document = Mapping[str, Any]

_GPU = 1
"""The kind of an instance group that runs on GPUs."""

_INFERERS = {"pytorch": "torch", "tensorflow": "tensorflow", "tensorrt": "tensorrt"}
"""The original's engines by the prefix of ours; any other is ``customized``."""


_KEPT_ENTRIES = 4096
"""The number of cached entries: any client may request them at any rate."""

_FastDumper: type[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""Five times as fast, if PyYAML was built with libyaml."""


class _YamlCpp(yaml.SafeDumper):
    """Writes as yaml-cpp does: lists one step in, null as a tilde."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


class _FastYamlCpp(_FastDumper):  # type: ignore[misc]
    """The same, but lists are not one step in."""


for _dumper in (_YamlCpp, _FastYamlCpp):
    _dumper.add_representer(
        type(None), lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:null", "~")
    )


def py_server(deployment: Deployment, options: PredictOptions) -> str:
    """The whole configuration in the Python server's form."""
    models = "".join(
        [_py_entry(*each) for status in deployment.models.values() for each in _versions(status)]
    )
    dag, server = _dump_py(_dag(deployment)), _dump_py(_server(deployment.listeners, options))
    return f"{_listed(models)}{dag}\n{server}"


def cpp_server(deployment: Deployment, options: PredictOptions) -> str:
    """The whole configuration in the C++ server's form."""
    models = "".join(
        [_cpp_entry(*each) for status in deployment.models.values() for each in _versions(status)]
    )
    return (
        f"{_dump_cpp(_server(deployment.listeners, options))}\n{_listed(models)}{_dump_cpp(_dag(deployment))}"
    )


def py_model(deployment: Deployment) -> str:
    """The one model of ``deployment`` in the Python server's form: keys in alphabetical order."""
    return yaml.safe_dump(_chosen(deployment), sort_keys=True, allow_unicode=True)


def cpp_model(deployment: Deployment) -> str:
    """The one model of ``deployment`` in the C++ server's form."""
    return _dump_cpp(_chosen(deployment))


def _dump_py(document: Document) -> str:
    return yaml.dump(document, Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True)


def _dump_cpp(document: Document) -> str:
    return yaml.dump(document, Dumper=_YamlCpp, sort_keys=False, allow_unicode=True).rstrip("\n")


# --- inference.yml


def _listed(models: str) -> str:
    return f"models:\n{models}" if models else "models: []\n"


def _dag(deployment: Deployment) -> Document:
    default = deployment.models.get(deployment.default_model)
    chosen = [] if default is None else list(_versions(default))[-1:]
    return {
        "dag": {
            "type": "sequential",
            "name": deployment.default_model or None,
            "nodes": [
                {"name": "node-1", "type": "model", "model": f"{name}-{version}"}
                for name, version, _ in chosen
            ],
        }
    }


def _versions(status: ModelStatus) -> Iterator[tuple[str, str, bytes]]:
    """An entry for each version that is ready, the default version last."""
    ready = [each.version for each in status.versions if each.state is ModelState.READY]
    for version in ready or [""]:
        yield status.name, version, status.config


@lru_cache(_KEPT_ENTRIES)
def _py_entry(name: str, version: str, config: bytes) -> str:
    entry = [_entry(name, version, config)]
    return str(yaml.dump(entry, Dumper=_FastDumper, sort_keys=False, allow_unicode=True))


@lru_cache(_KEPT_ENTRIES)
def _cpp_entry(name: str, version: str, config: bytes) -> str:
    entry = [_entry(name, version, config)]
    return indent(yaml.dump(entry, Dumper=_FastYamlCpp, sort_keys=False, allow_unicode=True), "  ")


def _entry(name: str, version: str, stated: bytes) -> Document:
    config = MODEL_CONFIG.FromString(stated)
    engine = config.backend or config.platform
    kinds = (kind for start, kind in _INFERERS.items() if engine.startswith(start))
    batching = config.HasField("dynamic_batching")
    return {
        "name": name,
        "version": version,
        "device": _device(config),
        "inp_device": None,
        "inferer_type": next(kinds, "customized"),
        "inferer_name": engine or None,
        "inferer_path": None,
        "inferer_args": {"customized_op_paths": None},
        "converter_type": "none",
        "converter_name": None,
        "converter_path": None,
        "converter_args": None,
        "batching": {
            "type": "dynamic" if batching else "none",
            "max_batch_size": config.max_batch_size,
            "batch_timeout_us": config.dynamic_batching.max_queue_delay_microseconds,
        },
    }


def _device(config: Any) -> str:
    for group in config.instance_group:
        if group.kind == _GPU or group.gpus:
            return f"cuda:{group.gpus[0] if group.gpus else 0}"
    return "cpu"


def _chosen(deployment: Deployment) -> Document:
    """The default version."""
    (status,) = deployment.models.values()
    return _entry(*list(_versions(status))[-1])


# --- server.yml


def _server(listeners: Iterable[ListenerAddress], options: PredictOptions) -> Document:
    return {
        "interface": _interface(listeners, options),
        # we have no such limits; requests queue at their model
        "max_connections": None,
        "max_concurrency": None,
        "log": {"log_dir": None, "log_backup_count": None},
    }


_TRANSPORTS = ("http", "grpc", "brpc")


def _interface(listeners: Iterable[ListenerAddress], options: PredictOptions) -> Document:
    """The first address of each transport, without unix sockets, which this layout lacks."""
    places: dict[str, tuple[str, str]] = {}
    for each in listeners:
        host, _, port = each.address.rpartition(":")
        if "grps" in each.dialects and not each.address.startswith("unix:"):
            for transport in _TRANSPORTS if each.transport == "any" else (each.transport,):
                places.setdefault(transport, (host, port))
    # in the original's order: "http,rpc"
    carried = sorted(places, key=_TRANSPORTS.index)
    document: dict[str, Any] = {
        "framework": "+".join(carried) or None,
        "host": places[carried[0]][0] if carried else None,
        "port": ",".join(places[transport][1] for transport in carried) or None,
    }
    if options != PredictOptions():
        document["customized_predict_http"] = {
            "path": options.path or None,
            "customized_body": options.whole_request,
            "streaming_ctrl": {
                "ctrl_mode": options.streaming.place,
                "ctrl_key": options.streaming.key,
                "res_content_type": options.streaming.content_type,
            },
        }
    return document
