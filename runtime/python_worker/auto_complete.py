"""The argument of ``auto_complete_config`` of a Python model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class AutoCompleteConfig:
    """``config`` is the configuration that ``auto_complete_config`` may complete."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config

    def as_dict(self) -> dict[str, Any]:
        return self._config

    def add_input(self, tensor: Mapping[str, Any]) -> None:
        """Declare an input: ``name``, ``data_type``, ``dims`` and perhaps ``optional``."""
        self._add("input", tensor)

    def add_output(self, tensor: Mapping[str, Any]) -> None:
        """Declare an output: ``name``, ``data_type`` and ``dims``."""
        self._add("output", tensor)

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """State the batch limit if none is stated."""
        stated = self._config.get("max_batch_size", 0)
        if stated and stated != max_batch_size:
            raise ValueError(f"configuration specified max_batch_size {stated}, not {max_batch_size}")
        self._config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        self._config.setdefault("dynamic_batching", {})

    def set_model_transaction_policy(self, transaction_policy: Mapping[str, bool]) -> None:
        self._config["model_transaction_policy"] = dict(transaction_policy)

    def _add(self, role: str, tensor: Mapping[str, Any]) -> None:
        missing = [key for key in ("name", "data_type", "dims") if key not in tensor]
        if missing:
            raise ValueError(f"{role} {dict(tensor)!r} has no {missing[0]}")
        entries = self._config.setdefault(role, [])
        found = next((entry for entry in entries if entry["name"] == tensor["name"]), None)
        if found is None:
            entries.append(dict(tensor))
        elif found["data_type"] not in ("TYPE_INVALID", tensor["data_type"]):
            raise ValueError(
                f"{role} '{tensor['name']}' is a {found['data_type']}, not a {tensor['data_type']}"
            )
