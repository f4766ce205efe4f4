"""Holds resources of KServe against its Python package, field by field: JSON in, the faults of each resource out.

A process of its own, because the package and tritonclient both register the messages of the protocol.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

PLAIN: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "bool": (bool,), "float": (int, float)}
KINDS = {"InferenceService": "V1beta1InferenceService", "ServingRuntime": "V1alpha1ServingRuntime"}


def faults(found: Any, kind: str, where: str) -> Iterator[str]:
    """What of ``found`` does not fit ``kind``, a type as the package spells it."""
    inner = re.fullmatch(r"list\[(.+)\]|dict[(\[]str, (.+)[\])]", kind, re.IGNORECASE)
    if inner and inner[1]:
        assert isinstance(found, list), where
        for place, each in enumerate(found):
            yield from faults(each, inner[1], f"{where}[{place}]")
    elif inner:
        for key, each in found.items():
            yield from faults(each, inner[2], f"{where}.{key}")
    elif kind in PLAIN:
        if not isinstance(found, PLAIN[kind]):
            yield f"{where}: {found!r} is no {kind}"
    elif kind != "object":
        name = kind.rpartition(".")[2]
        packages = map(importlib.import_module, ("kserve.models", "kubernetes.client"))
        model = next((getattr(each, name) for each in packages if hasattr(each, name)), None)
        assert model is not None, kind
        known = {name: model.openapi_types[field] for field, name in model.attribute_map.items()}
        for key, each in found.items():
            if key not in known:
                yield f"{where}.{key} is unknown"
            else:
                yield from faults(each, known[key], f"{where}.{key}")


if __name__ == "__main__":
    resources = json.load(sys.stdin)
    kinds = [KINDS.get(each["kind"], f"V1{each['kind']}") for each in resources]
    found = [list(faults(each, kind, kind)) for each, kind in zip(resources, kinds, strict=True)]
    json.dump(found, sys.stdout)
