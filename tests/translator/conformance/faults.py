"""Faults that a server or a bridge may have, each as something that a relay does to what passes through."""

from __future__ import annotations

import json

import numpy as np

from interlingua.schemas import pack_bytes
from tests.translator.conformance.relay import LENGTH, Passing, numbers, strings, with_numbers
from tests.translator.conformance.seeded import seeds

FAULTS, seed = seeds()


@seed("simple")
def wrong_value(passing: Passing) -> None:
    if passing.good:
        (first, data), *rest = passing.outputs()
        values = numbers(first, data)
        values[3] += 1
        passing.answer_with([with_numbers(first, data, values), *rest])


@seed("simple")
def wrong_value_now_and_then(passing: Passing) -> None:
    if passing.number % 11 == 0:
        wrong_value(passing)


@seed("digits")
def wrong_by_a_thousandth(passing: Passing) -> None:
    """In one element of an output that nobody can compute, now and then."""
    if passing.good and passing.number % 3 == 0:
        outputs = passing.outputs()
        for place, (output, data) in enumerate(outputs):
            if output["name"] == "probabilities":
                values = numbers(output, data)
                values[0] += 1e-3
                outputs[place] = with_numbers(output, data, values)
        passing.answer_with(outputs)


@seed("simple")
def swapped_outputs(passing: Passing) -> None:
    if passing.good and len(passing.outputs()) == 2:
        (one, first), (other, second) = passing.outputs()
        one["name"], other["name"] = other["name"], one["name"]
        passing.answer_with([(one, first), (other, second)])


@seed("simple")
def dropped_output(passing: Passing) -> None:
    if passing.good and len(passing.outputs()) == 2:
        passing.answer_with(passing.outputs()[:1])


@seed("simple")
def output_twice(passing: Passing) -> None:
    if passing.good:
        outputs = passing.outputs()
        passing.answer_with([*outputs, outputs[0]])


@seed("simple")
def wrong_datatype_name(passing: Passing) -> None:
    if passing.good:
        outputs = passing.outputs()
        outputs[0][0]["datatype"] = "INT"
        passing.answer_with(outputs)


@seed("simple")
def another_datatype(passing: Passing) -> None:
    if passing.good:
        outputs = passing.outputs()
        outputs[0][0]["datatype"] = "UINT32"
        passing.answer_with(outputs)


@seed("simple")
def shape_without_batch(passing: Passing) -> None:
    if passing.good:
        outputs = passing.outputs()
        for output, _ in outputs:
            if output["shape"][0] == 1:
                output["shape"] = output["shape"][1:]
        passing.answer_with(outputs)


@seed("identity_bytes")
def bytes_end_at_nul(passing: Passing) -> None:
    if passing.good:
        passing.answer_with(
            [
                (output, data and pack_bytes(element.split(b"\0")[0] for element in strings(data)))
                for output, data in passing.outputs()
            ]
        )


@seed("identity_bytes")
def bytes_cut_off(passing: Passing) -> None:
    """Only the first four bytes of an element are kept."""
    if passing.good:
        passing.answer_with(
            [
                (output, data and pack_bytes(element[:4] for element in strings(data)))
                for output, data in passing.outputs()
            ]
        )


@seed("identity_int64")
def wrapped_integer(passing: Passing) -> None:
    if passing.good:
        outputs = [(output, data, numbers(output, data)) for output, data in passing.outputs()]
        passing.answer_with(
            [
                with_numbers(output, data, values.astype("<i4").astype("<i8"))
                for output, data, values in outputs
            ]
        )


@seed("identity_fp64")
def through_single_precision(passing: Passing) -> None:
    if passing.good:
        with np.errstate(all="ignore"):
            outputs = [(output, data, numbers(output, data)) for output, data in passing.outputs()]
            passing.answer_with(
                [
                    with_numbers(output, data, values.astype("<f4").astype("<f8"))
                    for output, data, values in outputs
                ]
            )


@seed("identity_fp32")
def not_a_number_is_zero(passing: Passing) -> None:
    if passing.good:
        outputs = [(output, data, numbers(output, data)) for output, data in passing.outputs()]
        passing.answer_with(
            [
                with_numbers(output, data, np.nan_to_num(values, posinf=np.inf, neginf=-np.inf))
                for output, data, values in outputs
            ]
        )


@seed("simple")
def lost_id(passing: Passing) -> None:
    if passing.good:
        passing.answer_with(passing.outputs(), id=None)


@seed("simple")
def id_of_the_one_before(passing: Passing) -> None:
    if passing.good:
        own = passing.document()[0].get("id")
        passing.answer_with(passing.outputs(), id=passing.memory.get("id"))
        passing.memory["id"] = own


@seed("simple")
def not_found_is_invalid(passing: Passing) -> None:
    passing.status = 400 if passing.status == 404 else passing.status


@seed("simple")
def invalid_is_internal(passing: Passing) -> None:
    passing.status = 500 if passing.status == 400 else passing.status


@seed("simple")
def errors_are_successes(passing: Passing) -> None:
    passing.status = 200


@seed("simple")
def errors_are_plain_text(passing: Passing) -> None:
    if not passing.good:
        passing.answer = json.loads(passing.answer)["error"].encode()
        passing.answer_headers["Content-Type"] = "text/plain"


@seed("simple")
def stale_answer(passing: Passing) -> None:
    """Every seventh answer is that of the request before."""
    if passing.good:
        own = (passing.answer, dict(passing.answer_headers))
        if passing.number % 7 == 0 and "answer" in passing.memory:
            passing.answer, passing.answer_headers = passing.memory["answer"]
        passing.memory["answer"] = own


@seed("simple", up=True)
def outputs_ignored(passing: Passing) -> None:
    """The request's choice of outputs is dropped on the way up."""
    document = passing.requested()
    if document.get("outputs"):
        binary = any(output.get("parameters", {}).get("binary_data") for output in document.pop("outputs"))
        document["parameters"] = {**document.get("parameters", {}), "binary_data_output": binary}
        passing.ask_with(document)


@seed("simple")
def rows_reversed(passing: Passing) -> None:
    if passing.good:
        found = []
        for output, data in passing.outputs():
            values = numbers(output, data).reshape(output["shape"])
            found.append(with_numbers(output, data, values[::-1].ravel()))
        passing.answer_with(found)


@seed("simple")
def length_one_too_large(passing: Passing) -> None:
    if LENGTH in passing.answer_headers:
        passing.answer_headers[LENGTH] = str(int(passing.answer_headers[LENGTH]) + 1)


@seed("simple")
def body_cut_short(passing: Passing) -> None:
    if passing.good:
        passing.answer = passing.answer[:-4]


@seed("simple")
def another_model_named(passing: Passing) -> None:
    if passing.good:
        passing.answer_with(passing.outputs(), model_name="model")


@seed("simple", up=True)
def any_model_is_the_default(passing: Passing) -> None:
    if "no_such" in passing.path:
        passing.path = "/v2/models/simple/infer"


@seed("simple", up=True)
def any_version_will_do(passing: Passing) -> None:
    start, found, _ = passing.path.partition("/versions/")
    if found:
        passing.path = f"{start}/infer"


@seed("simple")
def what_is_broken_is_answered_as_before(passing: Passing) -> None:
    if passing.good:
        passing.memory["answer"] = (passing.answer, dict(passing.answer_headers))
    elif passing.status == 400 and "answer" in passing.memory:
        passing.status = 200
        passing.answer, passing.answer_headers = passing.memory["answer"]


@seed("simple")
def an_error_breaks_the_connection(passing: Passing) -> None:
    if not passing.good:
        passing.status = 0


@seed("identity_int64")
def json_integers_are_doubles(passing: Passing) -> None:
    """Only in answers in JSON."""
    if passing.good:
        passing.answer_with(
            [
                (output, data)
                if data is not None
                else (output | {"data": [float(value) for value in output["data"]]}, None)
                for output, data in passing.outputs()
            ]
        )
