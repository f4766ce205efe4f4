"""What grps carries: nine types, of which FP16 travels as float and narrow integers in 32 bits, all exact.

BOOL, UINT16, UINT32 and BF16 travel as the next wider type and become themselves again where the model's
signature says so; UINT64 has no wider one and is refused. Its strings are text: BYTES that are not UTF-8 are
refused by name, but for one element, which is ``bin_data``. JSON has one NaN. Of what is wrong with tensors,
and of a model that fails, it says the same: 500.
"""

from __future__ import annotations

from protocols.dialect import Capability
from protocols.grps.tensors import DATATYPES, WIDENED

CAPABILITY = Capability(
    exact=frozenset(DATATYPES.values()),
    widened=WIDENED,
    ids=False,
    parameters=False,
    requested_outputs=False,
    text_only=True,
    nan_payloads=False,
    signatures=False,
    error_kinds=False,
)
