"""The section ``grps`` of the configuration, with the keys of the original servers' ``server.yml``."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from interlingua.protocols.grps.options import PredictOptions, StreamingControl
from interlingua.protocols.section import Section, Text, UnownedPath

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VISIBLE = re.compile(r"[\x20-\x7e]+")


class StreamingControlOptions(Section):
    """The request for a streamed answer over HTTP."""

    ctrl_mode: Literal["query_param", "header_param", "body_param"] = "query_param"
    """The place of the flag: the query or a header (the word `true`), or a JSON body (the value `true`)."""
    ctrl_key: Text = "streaming"
    """The name of the flag. Any other name than the default disables `?streaming=true`."""
    res_content_type: Text = "application/octet-stream"
    """The content type of a stream."""

    @field_validator("ctrl_key")
    @classmethod
    def _name(cls, key: str, info: ValidationInfo) -> str:
        if info.data.get("ctrl_mode") == "header_param" and _TOKEN.fullmatch(key) is None:
            raise ValueError(f"'{key}' cannot be the name of a header")
        return key

    @field_validator("res_content_type")
    @classmethod
    def _value(cls, value: str) -> str:
        if _VISIBLE.fullmatch(value) is None:
            raise ValueError(f"{value!a} cannot be the value of a header")
        return value


class CustomizedPredictOptions(Section):
    """Predict over HTTP on a path and in a form of your own."""

    path: UnownedPath = ""
    """A second path for predict, beyond `/grps/v1/infer/predict`, such as `/v1/chat/completions`."""
    customized_body: bool = False
    """Pass the whole HTTP request to the models, on both paths, and let them write the whole answer."""
    streaming_ctrl: StreamingControlOptions = Field(default_factory=StreamingControlOptions)
    """The request for a stream, on both paths."""

    @field_validator("path", mode="before")
    @classmethod
    def _own(cls, path: Any) -> Any:
        if not isinstance(path, str) or not path:
            return path
        if not path.startswith("/") or path == "/" or set(path) & set("{}*?# "):
            raise ValueError(f"'{path}' is no path of one's own, such as /v1/chat/completions")
        return path


class GrpsOptions(Section):
    """The options of grps, on every listener that speaks it."""

    customized_predict_http: CustomizedPredictOptions = Field(default_factory=CustomizedPredictOptions)
    """Predict over HTTP on a path and in a form of your own."""

    def build(self) -> PredictOptions:
        """The options in the form that the codec reads."""
        customized = self.customized_predict_http
        control = customized.streaming_ctrl
        return PredictOptions(
            customized.path,
            customized.customized_body,
            StreamingControl(control.ctrl_mode, control.ctrl_key, control.res_content_type),
        )
