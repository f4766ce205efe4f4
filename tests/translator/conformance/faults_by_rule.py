"""Faults in what not every server has, each with the rules that have to find it: classes, shared memory,
sequences."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.translator.conformance.relay import Passing, numbers, with_numbers, with_words, words
from tests.translator.conformance.seeded import seeds

FAULTS, seed = seeds()


# --- classes


def classes_changed(passing: Passing, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Change each list of classes in an answer."""
    if not passing.good:
        return
    outputs = passing.outputs()
    asked = passing.requested().get("outputs", ())
    ranked = {output["name"] for output in asked if output.get("parameters", {}).get("classification")}
    for place, (output, data) in enumerate(outputs):
        if output["name"] in ranked:
            *_, each = output["shape"]
            told = words(output, data)
            entries = [change(told[at : at + each]) for at in range(0, len(told), each)]
            output["shape"][-1] = len(entries[0])
            outputs[place] = with_words(output, data, [word for entry in entries for word in entry])
    passing.answer_with(outputs)


def split_class(word: bytes) -> list[str]:
    return word.decode().split(":")


def joined_class(value: float, *rest: object) -> bytes:
    return ":".join([f"{value:f}", *map(str, rest)]).encode()


@seed("classy", "classification/highest-first")
def lowest_class_first(passing: Passing) -> None:
    classes_changed(passing, lambda told: told[::-1])


@seed("classy", "classification/highest-first")
def a_class_too_few(passing: Passing) -> None:
    classes_changed(passing, lambda told: told[:-1] or told)


@seed("classy", "classification/highest-first")
def a_class_twice(passing: Passing) -> None:
    classes_changed(passing, lambda told: [told[0], *told[:-1]])


@seed("classy", "classification/highest-first")
def second_class_first(passing: Passing) -> None:
    classes_changed(passing, lambda told: told[1:] or told)


@seed("simple", "classification/highest-first")
def classes_counted_from_one(passing: Passing) -> None:
    def change(told: list[bytes]) -> list[bytes]:
        parts = [split_class(word) for word in told]
        return [joined_class(float(value), int(place) + 1, *rest) for value, place, *rest in parts]

    classes_changed(passing, change)


@seed("simple", "classification/highest-first")
def value_of_a_class_rounded(passing: Passing) -> None:
    def change(told: list[bytes]) -> list[bytes]:
        parts = [split_class(word) for word in told]
        return [joined_class(round(float(value), -1), place, *rest) for value, place, *rest in parts]

    classes_changed(passing, change)


@seed("simple", "classification/highest-first", up=True)
def classes_ignored(passing: Passing) -> None:
    document = passing.requested()
    for output in document.get("outputs", ()):
        output.get("parameters", {}).pop("classification", None)
    passing.ask_with(document)


@seed("identity_fp16", "classification/unordered", up=True)
def classes_of_anything_are_ignored(passing: Passing) -> None:
    classes_ignored(passing)


@seed("classy", "classification/labels")
def label_by_rank(passing: Passing) -> None:
    def change(told: list[bytes]) -> list[bytes]:
        parts = [split_class(word) for word in told]
        return [
            joined_class(float(value), place, f"rank {at}") for at, (value, place, *_) in enumerate(parts)
        ]

    classes_changed(passing, change)


@seed("simple", "classification/beside-others")
def raw_output_lost_beside_classes(passing: Passing) -> None:
    if passing.good and any(output["datatype"] == "BYTES" for output, _ in passing.outputs()):
        outputs = passing.outputs()
        for place, (output, data) in enumerate(outputs):
            if output["datatype"] == "INT32":
                outputs[place] = with_numbers(output, data, numbers(output, data) * 0)
        passing.answer_with(outputs)


# --- shared memory


@seed(
    "simple",
    "shared-memory/registered-twice",
    "shared-memory/object-absent",
    "shared-memory/object-too-small",
)
def every_region_is_registered(passing: Passing) -> None:
    if passing.path.endswith("/register"):
        passing.status, passing.answer = 200, b""


@seed("simple", "shared-memory/registered")
def no_region_is_registered(passing: Passing) -> None:
    if passing.path.endswith("/register"):
        passing.status, passing.answer = 400, b'{"error": "no"}'


@seed("simple", "shared-memory/registered")
def status_without_regions(passing: Passing) -> None:
    if passing.path.endswith("/status"):
        passing.answer = b"[]"


@seed("simple", "shared-memory/registered", up=True)
def register_forgets_the_offset(passing: Passing) -> None:
    if passing.path.endswith("/register"):
        passing.body = json.dumps(json.loads(passing.body) | {"offset": 0}).encode()


@seed(
    "simple",
    "shared-memory/registered",
    "shared-memory/registered-twice",
    "shared-memory/region-absent",
    up=True,
)
def nothing_is_unregistered(passing: Passing) -> None:
    if passing.path.endswith("/unregister"):
        passing.path = passing.path.replace("/unregister", "_no_such/unregister")


def placed(document: dict[str, Any], side: str) -> Iterator[dict[str, Any]]:
    """The parameters of tensors in shared memory."""
    for tensor in document.get(side, ()):
        parameters = tensor.get("parameters", {})
        if "shared_memory_region" in parameters:
            yield parameters


@seed("simple", "shared-memory/input-tensors", up=True)
def inputs_at_the_start_of_their_region(passing: Passing) -> None:
    document = passing.requested()
    for parameters in placed(document, "inputs"):
        parameters["shared_memory_offset"] = 0
    passing.ask_with(document)


@seed("simple", "shared-memory/output-tensors", up=True)
def outputs_a_little_further(passing: Passing) -> None:
    document = passing.requested()
    for parameters in placed(document, "outputs"):
        parameters["shared_memory_offset"] += 1
    passing.ask_with(document)


@seed("simple", "shared-memory/output-tensors", up=True)
def outputs_nowhere(passing: Passing) -> None:
    document = passing.requested()
    for output in document.get("outputs", ()):
        if output.get("parameters", {}).pop("shared_memory_region", None):
            output["parameters"] = {"binary_data": True}
    passing.ask_with(document)


@seed("simple", "shared-memory/output-size", up=True)
def places_of_outputs_are_large_enough(passing: Passing) -> None:
    document = passing.requested()
    for parameters in placed(document, "outputs"):
        parameters["shared_memory_byte_size"] = 64
    passing.ask_with(document)


@seed("simple", "shared-memory/input-size", up=True)
def inputs_are_as_large_as_their_shape(passing: Passing) -> None:
    document = passing.requested()
    for parameters in placed(document, "inputs"):
        parameters["shared_memory_byte_size"] = 64
    passing.ask_with(document)


@seed("simple", "shared-memory/outside-region", up=True)
def places_wrap_around(passing: Passing) -> None:
    document = passing.requested()
    for side in ("inputs", "outputs"):
        for parameters in placed(document, side):
            parameters["shared_memory_offset"] = 0
    passing.ask_with(document)


@seed("simple", "shared-memory/region-absent")
def absent_regions_are_ignored(passing: Passing) -> None:
    if passing.infers and passing.status == 404:
        passing.status, passing.answer = 200, b'{"model_name": "simple", "outputs": []}'


# --- sequences


def in_sequence(passing: Passing, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what a request says of its sequence."""
    document = passing.requested()
    if passing.infers:
        change(document.setdefault("parameters", {}))
        passing.ask_with(document)


@seed("total", "sequences/start-needed", "sequences/ended", up=True)
def sequences_begin_by_themselves(passing: Passing) -> None:
    def change(said: dict[str, Any]) -> None:
        known = passing.memory.setdefault("known", set())
        if said.get("sequence_id"):
            said["sequence_start"] = said["sequence_start"] or said["sequence_id"] not in known
            (known.discard if said["sequence_end"] else known.add)(said["sequence_id"])

    in_sequence(passing, change)


@seed("total", "sequences/id-needed", up=True)
def ids_are_made_up(passing: Passing) -> None:
    def change(said: dict[str, Any]) -> None:
        if not said.get("sequence_id"):
            said |= {"sequence_id": 1, "sequence_start": True, "sequence_end": True}

    in_sequence(passing, change)


@seed("total", "sequences/ended", up=True)
def ends_are_forgotten(passing: Passing) -> None:
    in_sequence(passing, lambda said: said.update(sequence_end=False))


@seed("total", "sequences/restarted", up=True)
def a_second_start_is_none(passing: Passing) -> None:
    def change(said: dict[str, Any]) -> None:
        known = passing.memory.setdefault("known", set())
        start, end, number = (said.get(f"sequence_{name}") for name in ("start", "end", "id"))
        said["sequence_start"] = start and number not in known
        (known.discard if end else known.add)(number)

    in_sequence(passing, change)


@seed("total", "sequences/apart", up=True)
def all_sequences_are_one(passing: Passing) -> None:
    in_sequence(passing, lambda said: said.update(sequence_id=1))


@seed("total", "sequences/same-again")
def a_later_sequence_is_another(passing: Passing) -> None:
    if passing.good:
        number = passing.requested()["parameters"]["sequence_id"]
        passing.memory[number] = (
            passing.memory.get(number, 0) + passing.requested()["parameters"]["sequence_end"]
        )
        outputs = [(output, data, numbers(output, data)) for output, data in passing.outputs()]
        late = passing.memory[number] > 1
        passing.answer_with([with_numbers(output, data, values + late) for output, data, values in outputs])
