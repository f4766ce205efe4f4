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


C_KEYWORDS = frozenset({"asm", "const", "inline", "restrict", "signed", "thread", "typeof", "volatile"})
"""After two underscores these are names of the compiler, and mypyc puts one before each attribute."""


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


def _assigned(node: ast.AST) -> Iterator[str]:
    """The names that expressions in ``node`` assign to."""
    for each in ast.walk(node):
        if isinstance(each, ast.NamedExpr):
            yield each.target.id


def _in_expression(node: ast.expr | ast.Slice) -> Iterator[str]:
    """A name before an expression that assigns to it has the new value."""
    if isinstance(node, ast.BoolOp | ast.IfExp | ast.NamedExpr):
        return
    parts = list(ast.iter_child_nodes(node))
    for number, part in enumerate(parts):
        if isinstance(part, ast.Name) and any(part.id in _assigned(later) for later in parts[number + 1 :]):
            yield f"{part.id} before it is assigned in {ast.unparse(node)}"


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
        if "NamedTuple" in bases and isinstance(each, ast.AnnAssign) and "memoryview" in ast.unparse(each):
            yield f"memoryview in the named tuple {node.name}"
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr[:1] == "_" and part.attr[1:] in C_KEYWORDS:
            yield f"attribute {part.attr}, which is C"


def unable(source: str) -> list[str]:
    """What mypyc refuses in ``source``, or compiles into an error, by name."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found += _in_function(node)
        elif isinstance(node, ast.ClassDef):
            found += _in_class(node)
        elif isinstance(node, ast.expr | ast.Slice):
            found += _in_expression(node)
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

    def five(self, data, start):
        self._inline = start and (start := 1)
        return data[start : (start := start + 4)]

class D(NamedTuple):
    data: memoryview
"""
    assert unable(source) == [
        "class C with several bases",
        "class C, whose instances are checked by their members",
        "second name of C.one",
        "attribute _inline, which is C",
        "memoryview in the named tuple D",
        "async generator each",
        "one name for errors of two types in two",
        "await after an error in three",
        "await after an error in four",
        "start before it is assigned in start:(start := (start + 4))",
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
