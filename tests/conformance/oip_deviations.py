"""Where we answer otherwise than Triton does, on purpose: one row for each reason.

The user's page, docs/dialects/oip.md, has the same rows in the words of ``what`` and ``why``. A recorded
exchange that is named here must differ in exactly the kinds of ``differs`` (see ``oip_replay``) and be
answered with ``status``; one that is not named must not differ at all. The replays of single requests hold
this of those that a pipeline can answer by itself, the replay before the daemon of all.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Deviation:
    """One reason to answer otherwise. ``status`` is our HTTP status or gRPC code."""

    what: str
    why: str
    status: int
    differs: frozenset[str]
    exchanges: tuple[str, ...]


_BODY = frozenset({"body"})
_STATUS = frozenset({"status"})
_TEXT = frozenset({"text"})

HTTP: tuple[Deviation, ...] = (
    Deviation(
        "JSON that does not parse, a member missing or of the wrong type, elements against shape",
        "it is the caller's mistake; a balancer must not eject us for it",
        400,
        _STATUS,
        (
            "bool_int",
            "bytes_int",
            "cls_neg",
            "err_bin_size_str",
            "err_empty_obj",
            "err_few_data",
            "err_float_shape",
            "err_ihcl_ 12",
            "err_inputs_obj",
            "err_missing_datatype",
            "err_missing_shape",
            "err_neg_shape",
            "err_not_json",
            "err_params_not_obj",
            "err_str_shape",
            "fp32_str",
            "gen_bad_json",
            "i64_str",
            "index_ready_bad",
            "params_prio_str",
            "params_seq_badflag",
            "trailing_comma",
            "trailing_garbage",
            "u8_over",
        ),
    ),
    Deviation(
        "a second region of one shared memory object",
        "the original has closed the object",
        400,
        _STATUS,
        ("shm_reg_too_big", "shm_reg_zero"),
    ),
    Deviation(
        "health, model readiness",
        "KServe's client reads it",
        200,
        frozenset({"body", "content-type"}),
        ("keepalive_default", "live", "model_ready", "model_ready_ver", "query_string"),
    ),
    Deviation(
        "integers out of range",
        "no silent loss",
        400,
        _STATUS,
        ("i32_big", "i8_over"),
    ),
    Deviation("numbers beyond FP32", "no silent loss", 400, _STATUS, ("fp32_over",)),
    Deviation(
        "NaN and infinity in JSON answers",
        "clients cannot parse it; `nonfinite_json: token` writes them",
        400,
        _STATUS,
        ("fp32_nan_bin_json_out", "fp32_nan_literal"),
    ),
    Deviation(
        "BYTES that are not UTF-8 in JSON answers",
        "clients cannot parse it",
        422,
        _STATUS,
        ("bytes_bin_nonutf8_json_out",),
    ),
    Deviation("JSON that is not UTF-8", "the same", 400, _STATUS, ("bad_utf8_id",)),
    Deviation("ragged `data`", "it contradicts itself", 400, _STATUS, ("odd_nesting",)),
    Deviation("percent-escapes in a path", "tritonclient quotes names", 200, _STATUS, ("pct_name",)),
    Deviation(
        "integer parameters above 2^63-1",
        "no silent loss",
        200,
        _BODY,
        ("params_bigint",),
    ),
    Deviation(
        "an HTTP/1.1 request without `Host`",
        "RFC 9112 requires it",
        400,
        _STATUS,
        ("no_host",),
    ),
    Deviation(
        "a parameter that a load or unload does not have",
        "as above",
        400,
        _STATUS,
        ("load_bad_param",),
    ),
    Deviation(
        "settings of the wrong type",
        "as above",
        400,
        _STATUS,
        ("log_set_bad", "trace_set_int"),
    ),
    Deviation(
        "a repository name in the index over HTTP",
        "a name that chooses nothing must not choose all",
        501,
        _STATUS,
        ("index_named_repo",),
    ),
    Deviation(
        "a batch of no rows",
        "the text should name the mistake",
        400,
        _TEXT,
        ("err_batch_zero",),
    ),
)

GRPC: tuple[Deviation, ...] = (
    Deviation(
        "integers out of range",
        "no silent loss",
        3,
        frozenset({"code"}),
        ("contents_INT16", "contents_INT8", "contents_UINT16", "contents_UINT8"),
    ),
    Deviation(
        "byte sizes beyond 64 bits",
        "the text should name the mistake",
        3,
        _TEXT,
        ("huge_dim",),
    ),
    Deviation(
        "`binary_data_output` over gRPC",
        "it concerns the form of an HTTP response",
        0,
        frozenset({"message"}),
        ("params_bdo",),
    ),
)


def by_exchange(rows: tuple[Deviation, ...]) -> dict[str, Deviation]:
    """The rows by the name of each exchange, of which none may stand in two."""
    found = {name: row for row in rows for name in row.exchanges}
    assert len(found) == sum(len(row.exchanges) for row in rows)
    return found
