"""The plan of an ensemble: what runs, in which order, and what is no plan."""

import pytest

from runtime.ensemble import Step, plan

DOUBLE = Step("double", {"x": "in"}, {"y": "doubled"})
NEGATE = Step("negate", {"x": "doubled"}, {"y": "out"})


def test_steps_come_in_the_order_of_their_tensors() -> None:
    assert plan([NEGATE, DOUBLE], ["in"], ["out"]).steps == (DOUBLE, NEGATE)


def test_only_what_is_asked_for_runs() -> None:
    aside = Step("aside", {"x": "in"}, {"y": "other", "z": "third"})
    steps = plan([DOUBLE, aside, NEGATE], ["in"], ["out", "other", "third"])
    assert steps.needed(["other"]) == [(aside, ("y",))]
    assert steps.needed(["out"]) == [(DOUBLE, ("y",)), (NEGATE, ("y",))]
    assert {step.model for step, _ in steps.needed(["out", "third"])} == {"double", "negate", "aside"}
    assert steps.needed([]) == []


@pytest.mark.parametrize(
    ("steps", "inputs", "outputs", "says"),
    [
        ([], ["in"], ["out"], "at least one step"),
        ([Step("", {"x": "in"}, {"y": "out"})], ["in"], ["out"], "step 0 names no model"),
        ([Step("m", {"x": "in"}, {})], ["in"], ["out"], r"step 0 \(model 'm'\) has no output_map"),
        (
            [Step("m", {"x": "in"}, {"y": "out"}), Step("n", {"x": "in"}, {"y": "out"})],
            ["in"],
            ["out"],
            r"tensor 'out' comes from step 0 \(model 'm'\) and from step 1 \(model 'n'\)",
        ),
        ([Step("m", {"x": "in"}, {"y": "in"})], ["in"], ["in"], "'in' comes from the ensemble's inputs and"),
        (
            [Step("m", {"x": "no"}, {"y": "out"})],
            [],
            ["out"],
            r"'no', which step 0 \(model 'm'\) takes, comes",
        ),
        (
            [DOUBLE],
            ["in"],
            ["doubled", "far"],
            "'far', which the ensemble's outputs takes, comes from nowhere",
        ),
        ([DOUBLE, NEGATE], ["in", "idle"], ["out"], "'idle' from the ensemble's inputs is taken by no step"),
        ([DOUBLE, NEGATE, Step("m", {}, {"y": "lost"})], ["in"], ["out"], "'lost' from step 2"),
        (
            [Step("m", {"x": "b"}, {"y": "a"}), Step("n", {"x": "a"}, {"y": "b"})],
            [],
            ["a"],
            r"these wait for each other: step 0 \(model 'm'\), step 1 \(model 'n'\)",
        ),
    ],
)
def test_what_is_no_plan(steps: list[Step], inputs: list[str], outputs: list[str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        plan(steps, inputs, outputs)
