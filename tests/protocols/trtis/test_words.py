"""What the runtime says in version 2's words, in version 1's."""

import pytest

from interlingua.protocols.trtis.words import in_own_words


@pytest.mark.parametrize(
    ("told", "own"),
    [
        (
            "inference request to model 'm' must specify a non-zero or non-empty correlation ID",
            "inference request to model 'm' must specify a non-zero correlation ID",
        ),
        (
            "failed to load 'no\nbody', failed to poll from model repository",
            "failed to load 'no\nbody', no version is available",
        ),
        (
            "class result not available for output due to unsupported type 'BYTES' of 'x'",
            "class result not available for output 'x' due to unsupported type 'TYPE_STRING'",
        ),
        (
            "inference input 'FP32' data-type is 'BYTES', but model 'BYTES' expects 'FP32'",
            "inference input 'FP32' data-type is 'TYPE_STRING', but model 'BYTES' expects 'TYPE_FP32'",
        ),
        (
            "tensor 's' of datatype BYTES and shape [1] is cut short",
            "tensor 's' of datatype TYPE_STRING and shape [1] is cut short",
        ),
        (
            "input 'x' has the datatype BF16, which cannot be",
            "input 'x' has the datatype BF16, which cannot be",
        ),
        (
            "unexpected shape for input 'x' for model 'm'. Expected [-1,2], got [1,3]. "
            "The first dimension is the batch.",
            "unexpected shape for input 'x' for model 'm'. Expected [2], got [3]",
        ),
        (
            "[request id: 7] unexpected shape for input 'x' for model 'm'. Expected [-1,-1,3], got [4]. "
            "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension",
            "[request id: 7] unexpected shape for input 'x' for model 'm'. Expected [-1,3], got []",
        ),
        (
            "unexpected shape for input 'x' for model 'm'. Expected [2], got [1,3]. ",
            "unexpected shape for input 'x' for model 'm'. Expected [2], got [1,3]. ",
        ),
        ("unexpected number of 5 BYTES", "unexpected number of 5 BYTES"),
    ],
)
def test_errors_are_reported_in_version_1s_words(told: str, own: str) -> None:
    assert in_own_words(told) == own
