"""The modules that a compiled build compiles (docs/adr/compiled.md): what mypyc cannot compile stays out of them."""

from __future__ import annotations

import ast
import importlib.util
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlingua.protocols.transport import allowance
from interlingua.translator.cli import main
from interlingua.translator.compiled import is_compiled

ROOT = Path(__file__).parent.parent
OPTIONS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["interlingua"]["compiled"]
MODULES: list[str] = OPTIONS["modules"]


def _own(function: ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """The nodes of ``function`` without those of functions inside it."""
    rest: list[ast.AST] = list(function.body)
    while rest:
        node = rest.pop()
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            rest += ast.iter_child_nodes(node)


def unable(source: str) -> list[str]:
    """What mypyc refuses in ``source``, by name."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AsyncFunctionDef) and any(isinstance(each, ast.Yield) for each in _own(node)):
            found.append(f"async generator {node.name}")
        elif isinstance(node, ast.ClassDef):
            bases = [ast.unparse(base).partition("[")[0] for base in node.bases]
            if len([base for base in bases if base not in ("Protocol", "Generic")]) > 1:
                found.append(f"class {node.name} with several bases")
    return found


def test_the_list_is_sorted_and_every_module_exists() -> None:
    assert sorted(set(MODULES)) == MODULES
    assert [module for module in MODULES if not (ROOT / f"{module}.py").is_file()] == []


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_nothing_that_mypyc_refuses(module: str) -> None:
    assert unable((ROOT / f"{module}.py").read_text()) == []


def test_what_mypyc_refuses_is_found() -> None:
    source = (
        "class C(A, B[int]):\n async def each(self):\n  if 1:\n   yield 1\n async def one(self): return 1"
    )
    assert unable(source) == ["class C with several bases", "async generator each"]


def test_the_command_states_the_build(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.endswith(" (compiled)\n") == is_compiled()


def test_the_sources_are_pure_python() -> None:
    in_sources = Path(allowance.__file__).resolve().is_relative_to(ROOT / "protocols")
    assert not (in_sources and is_compiled())


@pytest.mark.skipif(not is_compiled(), reason="a pure build: make test-compiled tests the other")
def test_a_compiled_build_has_compiled_every_module() -> None:
    specs = [importlib.util.find_spec(f"interlingua.{module.replace('/', '.')}") for module in MODULES]
    assert [spec.origin for spec in specs if spec and str(spec.origin).endswith(".py")] == []
