"""Generate what is derived from the wire contracts: descriptor sets, and the flatc oracle of the tests.

``--check`` generates into a temporary folder instead and exits 1, naming each checked-in file that
is stale, missing or left over. The compilers come from the environment of the running interpreter
(``grpcio-tools`` and ``flatc``), never from the system.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from itertools import chain
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
_IMPORT = re.compile(r'^import "([^"]+)";', re.MULTILINE)


def _top_files(folder: Path) -> tuple[str, ...]:
    """The contracts in ``folder``: the files that no other file of the folder imports."""
    imports = {file: _IMPORT.findall(file.read_text(encoding="utf-8")) for file in folder.glob("*.proto")}
    imported = {name for names in imports.values() for name in names}
    return tuple(str(file.relative_to(ROOT)) for file in sorted(imports) if file.name not in imported)


PROTOS = tuple(chain.from_iterable(map(_top_files, sorted((ROOT / "schemas").iterdir()))))
"""Contracts by their top file. A set includes what the file imports, from the same folder or SHARED."""
SHARED = ROOT / "schemas/model_config"
FLATBUFFERS = {"schemas/graphpipe/graphpipe.fbs": "tests/oracle/graphpipe_fbs/graphpipe"}
"""FlatBuffers schemas, and the folder that their namespace has to itself."""


def generate(target: Path) -> None:
    """Write every artefact below ``target``, at its path in the repository."""
    for proto in PROTOS:
        _descriptor_set(ROOT / proto, (target / proto).with_suffix(".desc"))
    for schema, folder in FLATBUFFERS.items():
        _flatbuffers(ROOT / schema, target / folder)


def differences(generated: Path) -> list[str]:
    """The paths, relative to the repository, at which it is not what stands below ``generated``."""
    fresh = _artefacts(generated)
    present = _artefacts(ROOT)
    return sorted(path for path in fresh.keys() | present.keys() if fresh.get(path) != present.get(path))


def _descriptor_set(proto: Path, output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    # without --include_source_info: comments would make every edit of one a change of the contract
    arguments = (
        "protoc",
        f"-I{proto.parent}",
        f"-I{SHARED}",
        "--include_imports",
        f"--descriptor_set_out={output}",
    )
    if protoc.main([*arguments, proto.name]) != 0:
        raise SystemExit(f"protoc refused {proto}")


def _flatbuffers(schema: Path, folder: Path) -> None:
    flatc = Path(sys.executable).parent / "flatc"
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([flatc, "--python", "-o", scratch, schema], check=True)  # noqa: S603
        # a type that the schema no longer has must not stay behind
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(Path(scratch, folder.name), folder)


def _artefacts(root: Path) -> dict[str, bytes]:
    files = [(root / proto).with_suffix(".desc") for proto in PROTOS]
    for folder in FLATBUFFERS.values():
        files += (root / folder).rglob("*.py")
    return {str(file.relative_to(root)): file.read_bytes() for file in files if file.exists()}


def main() -> int:
    """Generate, or check; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, fail where a file is stale")
    if not parser.parse_args().check:
        generate(ROOT)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        stale = differences(Path(scratch))
    for path in stale:
        print(f"stale: {path} (run `make schemas`)", file=sys.stderr)  # noqa: T201
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
