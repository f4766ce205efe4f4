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


def _waits_after_errors(statement: ast.Try) -> bool:
    """See ``protocols.transport.closing``."""
    after = statement.finalbody + [line for handler in statement.handlers for line in handler.body]
    waiting = ast.Await | ast.AsyncFor | ast.AsyncWith
    return any(isinstance(each, waiting) for line in after for each in ast.walk(line))


def _own(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """The nodes of ``function`` without those of functions inside it."""
    rest: list[ast.AST] = list(function.body)
    while rest:
        node = rest.pop()
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            rest += ast.iter_child_nodes(node)


def _in_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    if isinstance(node, ast.AsyncFunctionDef) and any(isinstance(each, ast.Yield) for each in _own(node)):
        yield f"async generator {node.name}"
    caught: dict[str, str] = {}
    for each in _own(node):
        if isinstance(each, ast.AsyncWith) or (isinstance(each, ast.Try) and _waits_after_errors(each)):
            yield f"await after an error in {node.name}"
        if isinstance(each, ast.ExceptHandler) and each.name and each.type:
            errors = ast.unparse(each.type)
            if caught.setdefault(each.name, errors) != errors:
                yield f"one name for errors of two types in {node.name}"


def _in_class(node: ast.ClassDef) -> Iterator[str]:
    bases = [ast.unparse(base).partition("[")[0] for base in node.bases]
    if len([base for base in bases if base not in ("Protocol", "Generic")]) > 1:
        yield f"class {node.name} with several bases"
    if any(ast.unparse(each) == "runtime_checkable" for each in node.decorator_list):
        yield f"class {node.name}, whose instances are checked by their members"
    methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    for each in node.body:
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Name) and each.value.id in methods:
            yield f"second name of {node.name}.{each.value.id}"


def unable(source: str) -> list[str]:
    """What mypyc refuses in ``source``, or compiles into an error, by name."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found += _in_function(node)
        elif isinstance(node, ast.ClassDef):
            found += _in_class(node)
    return found


def test_the_list_is_sorted_and_every_module_exists() -> None:
    assert sorted(set(MODULES)) == MODULES
    assert [module for module in MODULES if not (ROOT / f"{module}.py").is_file()] == []


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_nothing_that_mypyc_refuses(module: str) -> None:
    assert unable((ROOT / f"{module}.py").read_text()) == []


def test_what_mypyc_refuses_is_found() -> None:
    source = """
@runtime_checkable
class C(A, B[int]):
    async def each(self):
        if 1:
            yield 1

    async def one(self):
        return 1

    again = one

    def two(self):
        try:
            pass
        except OSError as error:
            pass
        except (ValueError, TypeError) as error:
            pass

    async def three(self):
        try:
            pass
        finally:
            await close()

    async def four(self):
        async with self:
            pass
"""
    assert unable(source) == [
        "class C with several bases",
        "class C, whose instances are checked by their members",
        "second name of C.one",
        "async generator each",
        "one name for errors of two types in two",
        "await after an error in three",
        "await after an error in four",
    ]


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
