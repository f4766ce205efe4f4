"""The arrows between the rooms, read off the imports of every source file.

A rule is a function from a tree of sources to the violations in it. Each is held against this repository, and
against a small tree with one seeded violation, which it must find.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Callable, Iterator, Set
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = "interlingua"
ROOMS = ("schemas", "protocols", "runtime", "translator")
OUTSIDE = ("tests", "benchmarks", "examples", "scripts")
SCHEMAS_MAY_USE = {"numpy", "ml_dtypes", "google", "flatbuffers"}
ENGINES = {"aiohttp", "grpc", "asyncio", "socket", "ssl"}
MODULES_AT_THE_TOP = 10
TARGETS = {"LocalModel", "UpstreamModel"}
DIALECT_FILES = {"__init__", "capability", "codec", "server", "client", "manifest"}

# models of users import this module, so its class names are Triton's
_NAMES_OF_TRITON = "runtime/python_worker/triton_python_backend_utils.py"

# models of users may have modules with the names of the rooms; and this file has violations in strings
_BARE_ON_PURPOSE = {
    "tests/runtime/backends/test_python.py",
    "tests/runtime/backends/test_python_unusual.py",
    "tests/test_architecture.py",
}
_BARE_MODULE = re.compile(rf"^(?:{'|'.join(ROOMS)})(?:\.[a-z_]\w*)+(?::\w+)?$")
_BARE_IMPORT = re.compile(
    rf"(?:^|[\n;])\s*(?:from (?:{'|'.join(ROOMS)})[.\w]* import |import (?:[\w.]+, *)*(?:{'|'.join(ROOMS)})\b)"
)
_FILE_ENDING = re.compile(r"\.(?:py|md|desc|proto|fbs|yaml|json)$")

Violations = Iterator[tuple[Path, str]]


@functools.cache
def imports(path: Path) -> Set[str]:
    """Every module name that ``path`` imports, anywhere in it, relative ones with their dots."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found.update(f"{module}.{alias.name}" for alias in node.names)
    return found


def sources(root: Path, *rooms: str) -> list[Path]:
    return [path for room in rooms for path in sorted((root / room).rglob("*.py"))]


def tops(path: Path) -> set[str]:
    """The packages that ``path`` imports, and of ours the room: ``interlingua.schemas.tensor`` is schemas."""
    return {name.removeprefix(f"{PACKAGE}.").split(".")[0] for name in imports(path)}


def dialects(root: Path) -> list[Path]:
    return sorted(path.parent for path in (root / "protocols").glob("*/capability.py"))


def below(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def arrows_to_the_right(root: Path) -> Violations:
    for number, room in enumerate(ROOMS):
        forbidden = {*ROOMS[number + 1 :], *OUTSIDE}
        for path in sources(root, room):
            yield from ((path, name) for name in tops(path) & forbidden)


def the_package_itself(root: Path) -> Violations:
    """``import interlingua`` in a room would reach every other room through its lazy names."""
    for path in sources(root, *ROOMS):
        for name in imports(path):
            package, _, rest = name.partition(".")
            if package == PACKAGE and rest.split(".")[0] not in ROOMS:
                yield path, name


def relative_imports(root: Path) -> Violations:
    for path in sources(root, *ROOMS):
        yield from ((path, name) for name in imports(path) if name.startswith("."))


def bare_names(root: Path) -> Violations:
    """A room imported by its bare name is a second copy of its modules: two classes ``InferenceError``.

    Strings count too: names of modules to be imported later, and programs.
    """
    for path in sources(root, *ROOMS, *OUTSIDE):
        if str(path.relative_to(root)) in _BARE_ON_PURPOSE:
            continue
        yield from ((path, name) for name in imports(path) if name.split(".")[0] in ROOMS)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
                if _BARE_IMPORT.search(text) or (_BARE_MODULE.match(text) and not _FILE_ENDING.search(text)):
                    yield path, text


def impure_schemas(root: Path) -> Violations:
    for path in sources(root, "schemas"):
        foreign = tops(path) - sys.stdlib_module_names - {"schemas", PACKAGE} - SCHEMAS_MAY_USE
        yield from ((path, name) for name in foreign | tops(path) & ENGINES)


def sockets_outside_transports(root: Path) -> Violations:
    for path in sources(root, "protocols"):
        if "transport" not in path.relative_to(root).parts:
            yield from ((path, name) for name in tops(path) & ENGINES)


def dialects_that_import_another(root: Path) -> Violations:
    names = {folder: f"{PACKAGE}.protocols.{folder.name}" for folder in dialects(root)}
    for folder in names:
        for path in sorted(folder.rglob("*.py")):
            for other, module in names.items():
                if other != folder:
                    yield from ((path, name) for name in imports(path) if below(name, module))


def transports_that_import_a_dialect(root: Path) -> Violations:
    modules = [f"{PACKAGE}.protocols.{folder.name}" for folder in dialects(root)]
    for path in sources(root, "protocols/transport"):
        for module in (*modules, f"{PACKAGE}.protocols.registry"):
            yield from ((path, name) for name in imports(path) if below(name, module))


def import_cycles(root: Path) -> Violations:
    """Modules of a room that import each other, directly or not, under ``TYPE_CHECKING`` too."""
    for room in ROOMS:
        named = {
            ".".join((PACKAGE, *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__"): path
            for path in sources(root, room)
        }
        arrows = {
            name: {target for found in imports(path) for target in _modules(found, named)} - {name}
            for name, path in named.items()
        }
        for name, reached in _reachable(arrows).items():
            if name in reached:
                yield named[name], "is in an import cycle"


def _modules(found: str, named: dict[str, Path]) -> set[str]:
    """The modules that ``from a.b import c`` names: ``a.b.c`` where that is one, else ``a.b``."""
    return {found} & named.keys() or {found.rpartition(".")[0]} & named.keys()


def _reachable(arrows: dict[str, set[str]]) -> dict[str, set[str]]:
    """By module, those that it imports directly or not."""
    reached = {name: set(targets) for name, targets in arrows.items()}
    changed = True
    while changed:
        changed = False
        for targets in reached.values():
            further = set().union(*(reached[target] for target in targets)) - targets
            changed = changed or bool(further)
            targets |= further
    return reached


def crowded_rooms(root: Path) -> Violations:
    """The top level of a room is a map: what a newcomer reads first."""
    for room in ("runtime", "translator"):
        modules = sorted(path.name for path in (root / room).glob("*.py"))
        if len(modules) > MODULES_AT_THE_TOP:
            yield root / room, f"{len(modules)} modules at the top level"


def dialects_without_the_common_files(root: Path) -> Violations:
    for folder in dialects(root):
        yield from ((folder, name) for name in DIALECT_FILES - {path.stem for path in folder.glob("*.py")})


def class_names_used_twice(root: Path) -> Violations:
    """A public class name means one thing in all rooms."""
    known: dict[str, Path] = {}
    for path in sources(root, *ROOMS):
        if path == root / _NAMES_OF_TRITON:
            continue
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            if (first := known.setdefault(node.name, path)) != path:
                yield path, f"{node.name} is a class of {first.relative_to(root)} too"


def type_switches_on_targets(root: Path) -> Violations:
    """``Target`` is the whole protocol of a model: no code asks whether it is local or remote."""
    for path in sources(root, "runtime", "translator"):
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "isinstance"
            ):
                types = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
                yield from ((path, f"isinstance of {name}") for name in types & TARGETS)


_LINE = "from __future__ import annotations\n"
_WHOLE = {f"protocols/{name}/{file}.py": _LINE for name in ("one", "two") for file in DIALECT_FILES}

RULES: dict[Callable[[Path], Violations], list[dict[str, str]]] = {
    arrows_to_the_right: [
        {"schemas/x.py": "from interlingua.protocols import wire"},
        {"protocols/x.py": "import interlingua.translator.daemon"},
        {"runtime/x.py": "def late():\n    from interlingua.translator import cli"},
        {"runtime/x.py": "from tests.loopback import port"},
    ],
    the_package_itself: [
        {"schemas/x.py": "import interlingua"},
        {"runtime/x.py": "from interlingua import serve"},
    ],
    relative_imports: [
        {"runtime/x.py": "from . import model"},
        {"runtime/upstream/pool/x.py": "from ..model import Model"},
    ],
    bare_names: [
        {"protocols/x.py": "from schemas import Tensor"},
        {"tests/test_x.py": "import runtime.model as m"},
        {"benchmarks/x.py": "from translator.config import load"},
        {"runtime/x.py": 'BACKEND = "runtime.backends.torch"'},
        {"translator/x.py": 'PROGRAM = "import grpc; from schemas.oip import MESSAGES"'},
        {"tests/test_x.py": 'ENTRY = "translator.cli:main"'},
        {"tests/test_x.py": 'PROGRAM = "import sys, translator.cli"'},
    ],
    impure_schemas: [{"schemas/x.py": "import yaml"}, {"schemas/x.py": "import asyncio"}],
    sockets_outside_transports: [
        {"protocols/x.py": "import socket"},
        {"protocols/oip/codec.py": "import aiohttp"},
    ],
    dialects_that_import_another: [
        {**_WHOLE, "protocols/one/codec.py": "from interlingua.protocols.two.codec import decode"},
        {**_WHOLE, "protocols/two/client.py": "from interlingua.protocols import one"},
    ],
    transports_that_import_a_dialect: [
        {**_WHOLE, "protocols/transport/http/server.py": "from interlingua.protocols.one import codec"},
        {
            **_WHOLE,
            "protocols/transport/http/server.py": "from interlingua.protocols.registry import DIALECTS",
        },
    ],
    import_cycles: [
        {
            "runtime/x.py": "from interlingua.runtime import y",
            "runtime/y.py": "from interlingua.runtime.z import Z",
            "runtime/z.py": "def late():\n    from interlingua.runtime.x import X",
        },
        {
            "protocols/a/__init__.py": "from interlingua.protocols.a.x import X",
            "protocols/a/x.py": "if TYPE_CHECKING:\n    import interlingua.protocols.a",
        },
    ],
    crowded_rooms: [{f"runtime/x{number}.py": _LINE for number in range(MODULES_AT_THE_TOP + 1)}],
    class_names_used_twice: [
        {"runtime/x.py": "class Twice: ...", "translator/a/y.py": "def f():\n    class Twice: ..."},
    ],
    type_switches_on_targets: [
        {"runtime/x.py": "def f(x):\n    return isinstance(x, LocalModel)"},
        {"translator/x.py": "LOCAL = [x for x in () if not isinstance(x, (int, UpstreamModel))]"},
    ],
    dialects_without_the_common_files: [{"protocols/one/capability.py": _LINE}],
}

SEEDED = [(rule, tree) for rule, trees in RULES.items() for tree in trees]


def test_the_rooms_are_there() -> None:
    for room in ROOMS:
        assert sources(ROOT, room), room
        # what is imported is the room at the top of the repository, and not another folder
        assert (ROOT / PACKAGE / room).resolve() == ROOT / room
    assert len(dialects(ROOT)) >= 4


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_violation(rule: Callable[[Path], Violations]) -> None:
    assert [f"{path.relative_to(ROOT)}: {what}" for path, what in rule(ROOT)] == []


@pytest.mark.parametrize(("rule", "tree"), SEEDED, ids=lambda part: getattr(part, "__name__", ""))
def test_a_seeded_violation_is_found(
    rule: Callable[[Path], Violations], tree: dict[str, str], tmp_path: Path
) -> None:
    for name, source in tree.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    assert list(rule(tmp_path))


def test_every_dialect_is_registered() -> None:
    from interlingua.protocols.registry import DIALECTS

    assert set(DIALECTS) == {folder.name for folder in dialects(ROOT)}
    assert all(name == dialect.name for name, dialect in DIALECTS.items())
