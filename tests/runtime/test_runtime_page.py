"""docs/runtime.md says of every field of a model's configuration what becomes of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.model_config.pbtxt import read_config
from interlingua.schemas.model_config import MODEL_CONFIG

PAGE = Path(__file__).parents[2] / "docs" / "runtime.md"
STATES = {"supported", "reported", "refused"}
_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| .*\|$", re.MULTILINE)


def messages(descriptor: Any, found: dict[str, Any] | None = None) -> dict[str, Any]:
    """Every message that a configuration may hold, by its name, but those of the entries of maps."""
    found = {} if found is None else found
    name = descriptor.full_name.removeprefix("inference.")
    if name not in found:
        if not descriptor.GetOptions().map_entry:
            found[name] = descriptor
        for field in descriptor.fields:
            if field.message_type is not None:
                messages(field.message_type, found)
    return found


def documented() -> dict[str, dict[str, str]]:
    """What the page says: the state of each field, by message."""
    _, *sections = re.split(r"^### ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {section.partition("\n")[0]: dict(_ROW.findall(section)) for section in sections}


def test_every_field_has_a_row() -> None:
    known = {
        name: [field.name for field in descriptor.fields]
        for name, descriptor in messages(MODEL_CONFIG.DESCRIPTOR).items()
        if descriptor.fields
    }
    page = documented()
    assert {name: list(fields) for name, fields in page.items()} == known
    assert {state for fields in page.values() for state in fields.values()} == STATES


REFUSED = {
    ("ModelConfig", "batch_input"): 'batch_input { target_name: "x" }',
    ("ModelConfig", "batch_output"): 'batch_output { target_name: "x" }',
    ("ModelInput", "is_shape_tensor"): 'input { name: "x" data_type: TYPE_FP32 is_shape_tensor: true }',
    ("ModelOutput", "is_shape_tensor"): 'output { name: "x" data_type: TYPE_FP32 is_shape_tensor: true }',
}


def test_what_the_page_calls_refused_is() -> None:
    inside = {"BatchInput", "BatchOutput"}
    refused = {
        (name, field)
        for name, fields in documented().items()
        for field, state in fields.items()
        if state == "refused" and name not in inside
    }
    assert refused == set(REFUSED)


@pytest.mark.parametrize(("field", "text"), [(field, text) for (_, field), text in REFUSED.items()])
def test_a_refused_field_is_named(tmp_path: Path, field: str, text: str) -> None:
    text_format.Parse(text, MODEL_CONFIG())
    (tmp_path / "config.pbtxt").write_text(text)
    with pytest.raises(LoadError, match=f"{field} is not supported"):
        read_config(tmp_path)
