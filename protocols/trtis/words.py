"""Version 1's words for error messages of the runtime and of upstreams, which are those of version 2.

Users of version 1 match on texts, because its clients hide the code.
"""

from __future__ import annotations

import re

from interlingua.protocols.trtis.codec import DATATYPE_NUMBERS
from interlingua.schemas import Datatype

_PHRASES = (
    # correlation ids were numbers
    (re.compile("non-zero or non-empty correlation ID"), "non-zero correlation ID"),
    # version 2 does not name the output there, so its name is at the end
    (re.compile(r"(not available for output)( due to [a-z ]*'\w+') of ('.*')$", re.DOTALL), r"\1 \3\2"),
    # version 2 distinguishes an unknown name from a model without versions
    (
        re.compile("^(failed to load '.*', )failed to poll from model repository", re.DOTALL),
        r"\1no version is available",
    ),
    # shapes had no batch; version 2 notes where its shapes do
    (
        re.compile(
            r"(unexpected shape for input '.*' for model '.*'\. Expected \[)-?\d+,?([-\d,]*\], got \[)"
            r"-?\d+,?([-\d,]*\])\. (?:The first dimension is the batch\.$|NOTE: Setting a non-zero .*)",
            re.DOTALL,
        ),
        r"\1\2\3",
    ),
)
_NAMES = {
    datatype.value: f"TYPE_{'STRING' if datatype is Datatype.BYTES else datatype.value}"
    for datatype in DATATYPE_NUMBERS
}
_DATATYPE = re.compile(rf"\b((?:unsupported type|data-type is|expects|datatype) '?)({'|'.join(_NAMES)})\b")


def in_own_words(text: str) -> str:
    """``text`` with version 1's phrases and names of datatypes, such as ``TYPE_STRING``."""
    for phrase, own in _PHRASES:
        text = phrase.sub(own, text)
    return _DATATYPE.sub(lambda found: found[1] + _NAMES[found[2]], text)
