"""The plan of an ensemble: what runs, in which order, and what is no plan."""

import pytest

from interlingua.runtime.models.ensemble import Step, downstream, plan

DOUBLE = Step("double", {"x": "in"}, {"y": "doubled"})
NEGATE = Step("negate", {"x": "doubled"}, {"y": "out"})


def test_steps_come_in_the_order_of_their_tensors() -> None:
    assert plan([NEGATE, DOUBLE], ["in"], ["out"]).steps == (DOUBLE, NEGATE)


def test_only_what_is_requested_runs() -> None:
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


REPEAT = Step("repeat", {"x": "in"}, {"y": "pieces"})
AFTER = Step("after", {"x": "pieces"}, {"y": "out"})
JOIN = Step("join", {"a": "pieces", "b": "side"}, {"y": "out"})


@pytest.mark.parametrize(
    ("steps", "outputs", "decoupled", "says"),
    [
        ([REPEAT, AFTER], ["out"], ["repeat"], ""),
        ([REPEAT, AFTER], ["out", "pieces"], ["repeat"], ""),
        ([REPEAT, AFTER], ["out"], ["after"], ""),
        ([REPEAT, AFTER], ["out"], ["repeat", "after"], ""),
        ([REPEAT, AFTER], ["out", "pieces"], ["repeat", "after"], "outputs originate from different"),
        ([REPEAT, AFTER], ["out", "pieces"], ["after"], "outputs originate from different"),
        # what follows a decoupled step is joined with what does not
        ([REPEAT, Step("side", {"x": "in"}, {"y": "side"}), JOIN], ["out"], [], ""),
        (
            [REPEAT, Step("side", {"x": "in"}, {"y": "side"}), JOIN],
            ["out"],
            ["repeat"],
            "step 'join' takes tensors that originate from different decoupled models",
        ),
        (
            [REPEAT, Step("side", {"x": "in"}, {"y": "side"}), JOIN],
            ["out"],
            ["repeat", "side"],
            "step 'join'",
        ),
        ([REPEAT, Step("side", {"x": "pieces"}, {"y": "side"}), JOIN], ["out"], ["repeat"], ""),
        (
            [REPEAT, Step("join", {"a": "pieces", "b": "in"}, {"y": "out"})],
            ["out"],
            ["repeat"],
            "step 'join'",
        ),
        # twice
        (
            [REPEAT, Step("two", {"x": "in"}, {"y": "out"})],
            ["out", "pieces"],
            ["repeat", "two"],
            "its outputs",
        ),
        ([Step("none", {}, {"y": "out"})], ["out"], ["none"], ""),
    ],
)
def test_what_may_follow_a_decoupled_step(
    steps: list[Step], outputs: list[str], decoupled: list[str], says: str
) -> None:
    """As Triton 2.51 loads ensembles, or refuses them."""
    inputs = ["in"] if any("in" in step.inputs.values() for step in steps) else []
    found = plan(steps, inputs, outputs)
    places = {place for place, step in enumerate(found.steps) if step.model in decoupled}
    told = found.mixture(places)
    assert says in told
    assert bool(says) == bool(told)


def test_what_is_behind_a_step() -> None:
    side = Step("side", {"x": "in"}, {"y": "side"})
    waiting = plan([REPEAT, side, JOIN], ["in"], ["out"]).needed(["out"])
    names = {each[0].model: each for each in waiting}
    assert downstream(names["repeat"], waiting) == [names["join"]]
    assert downstream(names["join"], waiting) == []
