"""The arrows between the rooms, read off the imports of every source file."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("schemas", "protocols", "runtime", "translator")
SCHEMAS_MAY_USE = {"numpy", "ml_dtypes", "google", "flatbuffers"}
ENGINES = {"aiohttp", "grpc", "asyncio", "socket", "ssl"}
DIALECT_FILES = {"__init__", "capability", "codec", "server", "client"}


def imports(path: Path) -> set[str]:
    """Every absolute module name that ``path`` imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def sources(*rooms: str) -> list[Path]:
    return [path for room in rooms for path in sorted((ROOT / room).rglob("*.py"))]


def tops(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)}


def dialects() -> list[Path]:
    return sorted(path.parent for path in (ROOT / "protocols").glob("*/capability.py"))


def test_the_rooms_are_there() -> None:
    for room in ROOMS:
        assert sources(room), room
    assert len(dialects()) >= 2


@pytest.mark.parametrize("room", ROOMS)
def test_no_arrow_points_right(room: str) -> None:
    forbidden = set(ROOMS[ROOMS.index(room) + 1 :]) | {"tests", "benchmarks", "examples"}
    for path in sources(room):
        assert not tops(path) & forbidden, path


def test_schemas_are_pure() -> None:
    import sys

    for path in sources("schemas"):
        foreign = tops(path) - sys.stdlib_module_names - {"schemas"} - SCHEMAS_MAY_USE
        assert not foreign, (path, foreign)
        assert not tops(path) & ENGINES, path


def test_only_transports_open_sockets() -> None:
    for path in sources("protocols"):
        if "transport" not in path.parts:
            assert not tops(path) & ENGINES, path


def test_no_dialect_imports_another() -> None:
    for folder in dialects():
        others = {f"protocols.{other.name}" for other in dialects() if other != folder}
        for path in folder.rglob("*.py"):
            assert not {name for name in imports(path) for other in others if name.startswith(other)}, path


def test_no_transport_imports_a_dialect() -> None:
    names = {f"protocols.{folder.name}" for folder in dialects()} | {"protocols.registry"}
    for path in (ROOT / "protocols" / "transport").rglob("*.py"):
        assert not {name for name in imports(path) if name.startswith(tuple(names))}, path


def test_every_dialect_has_the_same_files() -> None:
    for folder in dialects():
        assert {path.stem for path in folder.glob("*.py")} >= DIALECT_FILES, folder


def test_every_dialect_is_registered() -> None:
    from protocols.registry import DIALECTS

    assert set(DIALECTS) == {folder.name for folder in dialects()}
    assert all(name == dialect.name for name, dialect in DIALECTS.items())
