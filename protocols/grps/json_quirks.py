"""The JSON of grps's servers: one table, a row for each form.

``py`` and ``cpp`` are the original servers over HTTP; ``compact`` is that of a bRPC port over HTTP/1.1, and
of our calls to upstreams; ``reply`` reads the answers of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType


# writers are cached by identity
@dataclass(frozen=True, slots=True, eq=False)
class JsonQuirks:
    """One form of JSON.

    Reading: ``no_json`` and ``no_data``, the first words about a body that is not JSON and about a document
    without a payload; ``byte_order_mark``, ``nan_tokens`` (bare NaN in an ndarray), ``last_key_wins`` where
    one comes twice, ``camel_case`` names inside of the data, ``numeric_text`` (numbers in strings, enums too,
    and whole floats as integers), ``nonfinite_any_case`` ("nan" is a float as "NaN" is), ``booleans`` in an
    ndarray (1 and 0) and ``empty_arrays`` there, ``lenient_base64`` (unpadded or URL-safe), ``maps_as_lists``
    of key and value, ``last_data_wins`` where a message has two payloads (else it is refused), ``bin_data``
    inside of JSON, ``any_member`` (a document needs no payload), ``null_is_nothing`` (a payload of null
    counts), ``minus_zero`` (-0 is a float, of which an integer would lose the sign).

    Writing: ``indent`` in spaces, None for no white space; ``ascii`` or raw text with < and > escaped;
    ``newline`` at the end; ``whole_floats`` written as integers; ``int64_text``; ``empty_model`` next to an
    ndarray.
    """

    name: str
    no_json: str = "Parse json failed. "
    no_data: str = "Have no legal member in json body."
    byte_order_mark: bool = False
    nan_tokens: bool = False
    last_key_wins: bool = False
    camel_case: bool = False
    numeric_text: bool = False
    nonfinite_any_case: bool = False
    booleans: bool = False
    empty_arrays: bool = False
    lenient_base64: bool = False
    maps_as_lists: bool = False
    last_data_wins: bool = False
    bin_data: bool = False
    any_member: bool = False
    null_is_nothing: bool = False
    minus_zero: bool = False
    indent: int | None = None
    ascii: bool = False
    newline: bool = False
    whole_floats: bool = False
    int64_text: bool = False
    empty_model: bool = False


PY = JsonQuirks(
    "py",
    no_json="",
    no_data="No legal field in json.",
    byte_order_mark=True,
    nan_tokens=True,
    last_key_wins=True,
    camel_case=True,
    numeric_text=True,
    booleans=True,
    empty_arrays=True,
    lenient_base64=True,
    indent=1,
    ascii=True,
    int64_text=True,
    empty_model=True,
)
CPP = JsonQuirks(
    "cpp",
    nonfinite_any_case=True,
    maps_as_lists=True,
    last_data_wins=True,
    null_is_nothing=True,
    indent=1,
    newline=True,
    whole_floats=True,
    int64_text=True,
)
COMPACT = JsonQuirks(
    "compact",
    nonfinite_any_case=True,
    maps_as_lists=True,
    last_data_wins=True,
    bin_data=True,
    any_member=True,
    null_is_nothing=True,
)
REPLY = JsonQuirks(
    "reply",
    byte_order_mark=True,
    nan_tokens=True,
    last_key_wins=True,
    camel_case=True,
    numeric_text=True,
    empty_arrays=True,
    lenient_base64=True,
    maps_as_lists=True,
    last_data_wins=True,
    bin_data=True,
    any_member=True,
    null_is_nothing=True,
    minus_zero=True,
)

QUIRKS = MappingProxyType({quirks.name: quirks for quirks in (PY, CPP, COMPACT, REPLY)})
"""Every form by name; ``py`` and ``cpp`` are those of a listener's flavor."""
