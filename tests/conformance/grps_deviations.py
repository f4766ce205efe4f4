"""Where we answer otherwise than the recorded grps servers did: one row for each reason.

The user's page, docs/dialects/grps.md, has the rows of ``DEVIATIONS`` in the same words. A case stands there as
``flavor:name``; one that is named must differ, one that is not must not.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One reason to answer otherwise."""

    what: str
    why: str
    cases: tuple[str, ...]


def _both(*names: str) -> tuple[str, ...]:
    return tuple(f"{flavor}:{name}" for name in names for flavor in ("py", "cpp"))


DEVIATIONS: tuple[Row, ...] = (
    Row("bodies of probes are not read", "a probe should not fail for it", (
        "cpp:live_post_badjson", "cpp:live_post_octet")),
    Row("HEAD is answered without a body", "HTTP", ("cpp:live_head",)),
    Row("parameters of a content type", "any HTTP library may send a charset", _both("str_charset_ct")),
    Row("an answer in JSON has the content type of JSON", "it is JSON, whatever the format of the request", (
        "cpp:str_text_plain", "cpp:str_no_ct", "cpp:form_ct", "cpp:predict_get", "cpp:predict_options",
        "cpp:stream_bad_ct", "cpp:custom_path_get", "cpp:m_CheckLiveness_get", "cpp:predict_no_ct")),
    Row("empty text, zero and empty lists are payloads", "they are", ("py:empty_str", "py:nd_scalar_zero")),
    Row("a tensor of an unknown type, without data, out of range or of another size than its shape", "no silent "
        "loss: the original hands it to the model as it is", (
        "py:gt_enum_bad_int", "cpp:gt_camel_flatInt32", *_both("gt_i8_overflow", "gt_u8_over"),
        "cpp:gt_f32_over", *_both("gt_dtype_field_mismatch", "gt_shape_mismatch", "gt_no_dtype",
        "gt_null_list_field"))),
    Row("a half is a half", "the original keeps the float that it travels as", (
        *_both("gt_f16", "out_all_dtypes"), "cpp:predict_all")),
    Row("base64 that is none", "no silent loss", ("py:gmap_b64_bad",)),
    Row("ndarray of ragged depth", "it has no shape", ("cpp:nd_ragged_depth", "cpp:nd_ragged_depth2")),
    Row("NaN and infinity", "JSON has no such numbers: they are text, as in gtensors", (
        *_both("nd_ret_on_nan"), "cpp:predict_nan")),
    Row("an empty model in a payload leaves the choice to the query", "so does the Python server", (
        "cpp:model_empty_payload_query",)),
    Row("metadata of any model, under any content type", "the original finds the first one alone, or wants JSON", (
        "cpp:meta_model_second", "py:meta_model_no_ct", "py:meta_model_text_ct")),
    Row("bRPC's paths on an HTTP listener of either flavor", "a client with a stub needs no word for it", (
        "py:brpc_path_Predict", "py:brpc_path_short_Predict")),
    Row("names of series are percent-decoded", "they cannot be sent otherwise", (
        "cpp:series_fail", "cpp:series_lat", "cpp:series_latmax", "cpp:series_cpu", "cpp:series_mem")),
    Row("no piece of a stream is lost, bytes are bytes", "the original loses those that it has not yet sent, and "
        "writes bytes as Python does", (
        "py:stream_kinds", "py:stream-kinds", "py:stream-kinds-slow", "py:stream_err", "py:stream-err",
        "py:stream-raise")),
    Row("server metadata over RPC have a status", "every other answer has one", ("cpp:m_ServerMetadata",)),
    Row("a tensor of no elements", "its size is that of its shape", ("py:zero_dim",)),
    Row("a tensor without a name is the model's input of that place", "the original counts them", ("py:noname",)),
    Row("an error has the text of the failed model alone", "the original adds the class of its exception", (
        "cpp:std_stream_raise",)),
)  # fmt: skip
"""On purpose."""

MAPPED: tuple[Row, ...] = (
    Row(
        "a model answers with tensors",
        "a gmap in place of text, an ndarray without contents, a message without a payload, a status "
        "or a model of its own are none",
        _both(
            "out_dict",
            "out_ndarray_oneof",
            "out_own_status",
            "out_model_field",
            "model_both_payload_wins",
        ),
    ),
    Row(
        "one element of BYTES goes back the way that the request came",
        "a tensor does not say whether it is text",
        (
            "py:nd_ret_on_bin",
            *_both("out_bin_empty", "model_query_octet", "model_ndarray_payload", "stream_octet"),
        ),
    ),
)
"""Because a message becomes tensors and an answer is made of them: what the recorded model, which was given the
message itself, could do and a model of tensors cannot."""

NOT_COMPARED: tuple[Row, ...] = (
    Row("the server crashed", "", ("cpp:json_string", "cpp:series_noname")),
    Row(
        "its model knew no such text there",
        "",
        (
            "cpp:stream_kinds",
            "cpp:stream-kinds",
            "cpp:stream-kinds-slow",
            "cpp:stream-err-slow",
            "cpp:stream-raise-slow",
            "py:stream-raise-slow",
            "py:std_bytes",
        ),
    ),
    Row("the recording was cut", "", ("py:std_stream_raise", "py:stream_badjson")),
)
"""Recorded answers that say nothing of what ours should be."""
