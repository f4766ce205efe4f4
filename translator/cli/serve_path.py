"""A configuration for ``interlingua serve PATH``: the models at a path on Triton's ports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from interlingua.protocols.transport.address import parse_address
from interlingua.runtime.model_config.config import ModelConfig
from interlingua.runtime.model_config.mlserver_settings import SETTINGS_FILENAME
from interlingua.runtime.repository.files import Repository
from interlingua.runtime.repository.model_files import MODEL_SUFFIXES, backend_of_file, version_folders
from interlingua.runtime.repository.model_folders import model_folders
from interlingua.translator.cli.arguments import RefusedError
from interlingua.translator.cli.yaml_text import as_key, as_value

CONFIG = "config.pbtxt"


def example_models() -> Path:
    """The model repository in this package."""
    return Path(str(files("interlingua.translator.example"))) / "models"


def configuration(path: Path, host: str, port: int) -> str:
    """The text of a configuration that serves the models at ``path``: every dialect on ``port``, gRPC on the
    next one, the admin address on the one after it; port 0 is a free one for each. Raises ``RefusedError`` if
    there is no model."""
    shown = f"[{host}]" if ":" in host else host
    places = [f"{shown}:{port + offset if port else 0}" for offset in range(3)]
    try:
        parse_address(places[0])
    except ValueError:
        raise RefusedError(f"--host: '{host}' is neither a name nor an address of this machine") from None
    fields = dict(zip(("all", "grpc", "admin"), map(as_value, places), strict=True))
    template = (files("interlingua.translator.example") / "config.yaml").read_text(encoding="utf-8")
    return Template(template).substitute(fields, models="\n".join(_models(path.resolve(), str(path))))


def _models(path: Path, stated: str) -> Iterator[str]:
    """The lines that state the models at ``path``."""
    if path.is_file():
        if backend_of_file(path) is None:
            hint = "; a configuration needs -c" if path.suffix in (".yaml", ".yml") else ""
            raise RefusedError(f"no backend runs '{stated}': model files end in {_suffixes()}{hint}")
        return _files([path])
    if not path.is_dir():
        raise RefusedError(f"'{stated}' does not exist")
    if _is_model(path):
        names = [name for name, folder in model_folders(path.parent).items() if folder == path]
        return _repository(path.parent, names or [path.name], chosen=True)
    if names := Repository(path).names():
        return _repository(path, names)
    found = sorted(each for each in path.iterdir() if backend_of_file(each) is not None)
    if not found:
        raise RefusedError(f"'{stated}' has no model: neither folders nor {_suffixes()} files")
    return _files(found)


def _is_model(folder: Path) -> bool:
    """Whether ``folder`` is that of one model, not of several."""
    stated = any((folder / name).exists() for name in (CONFIG, SETTINGS_FILENAME))
    return stated or bool(version_folders(folder, ModelConfig()))


def _repository(folder: Path, names: Sequence[str], chosen: bool = False) -> Iterator[str]:
    load = f", load: [{', '.join(map(as_value, names))}]" if chosen else ""
    yield "model_repository:"
    yield f"  - {{path: {as_value(str(folder))}{load}}}"
    yield from _default(names)


def _files(found: Sequence[Path]) -> Iterator[str]:
    yield "models:"
    for path in found:
        name = as_key(path.stem)
        yield f"  {name}: {{backend: {backend_of_file(path)}, path: {as_value(str(path))}}}"
    yield from _default([path.stem for path in found])


def _default(names: Sequence[str]) -> Iterator[str]:
    if len(names) == 1:
        yield "# for requests without a model name, such as GraphPipe's"
        yield f"default_model: {as_value(names[0])}"


def _suffixes() -> str:
    *most, last = MODEL_SUFFIXES
    return f"{', '.join(most)} or {last}"
