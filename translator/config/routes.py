"""The schema of a route: its conditions, its targets, and its changes to requests."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from interlingua.protocols.section import Seconds, Section, Text
from interlingua.translator.config.mirror import MirrorOptions
from interlingua.translator.config.references import KnownDialect, KnownListener, KnownModel
from interlingua.translator.config.values import ParameterValue, distinct


class MatchOptions(Section):
    """The conditions of a route; a request must match all of them. In texts `*` and `?` match any
    characters, `[ab]` one of them."""

    model: Text = "*"
    """The requested model."""
    dialect: KnownDialect | None = None
    """The caller's dialect. The default is any."""
    listener: KnownListener | None = None
    """The `listen` address of the listener. The default is any."""
    version: str | None = None
    """The requested version; `""` matches requests without one. The default is any."""
    headers: dict[Text, Text] = Field(default={})
    """Headers of HTTP, or metadata of gRPC, by name in any case."""
    parameters: dict[Text, ParameterValue] = Field(default={})
    """Parameters of an inference request. A number equals only numbers of its own type. Other requests
    have no parameters, so they never match."""


class PartOptions(Section):
    """A share of the requests."""

    to: KnownModel
    """The model that receives them."""
    weight: Annotated[float, Field(ge=0)] = 1.0
    """Its share, relative to the weights of the others; 0 for none."""


class StickyOptions(Section):
    """The key that keeps requests of a split together. Sequences always stay at one model."""

    header: Text
    """The header, or metadata, by name: requests with the same value go to the same model, in every
    process, until weights change. Requests without it are split one by one."""


class RenameOptions(Section):
    """The callers' names of tensors, and the model's names."""

    inputs: dict[Text, Text] = Field(default={})
    """The model's names of inputs, by the callers'."""
    outputs: dict[Text, Text] = Field(default={})
    """The model's names of outputs, by the callers'."""

    @field_validator("inputs", "outputs")
    @classmethod
    def _one_to_one(cls, names: dict[str, str]) -> dict[str, str]:
        distinct("tensor of the model", tuple(names.values()))
        return names


class RouteOptions(Section):
    """Sends requests to another model than they name. The first route that matches wins."""

    match: MatchOptions = Field(default_factory=MatchOptions)
    """The conditions. The default matches all requests."""
    to: KnownModel | None = None
    """The model that answers. A route has this or `split`."""
    split: Annotated[tuple[PartOptions, ...], Field(min_length=1)] | None = Field(
        default=None, validate_default=True
    )
    """The models that answer, each with its share."""
    sticky: StickyOptions | None = None
    """The key that keeps requests of a split together. The default is none; sequences stay together."""
    rename: RenameOptions = Field(default_factory=RenameOptions)
    """The callers' names of tensors. The default is the model's names."""
    versions: dict[str, str] = Field(default={})
    """The model's versions by the callers'. The key `"*"` is any other version, or none; the value `""`
    lets the model choose. Other versions stay unchanged."""
    fallback: KnownModel | None = None
    """The model that answers if the target is not loaded, unreachable or overloaded, has not begun the
    request, and the request is not in the middle of a sequence."""
    timeout_secs: Seconds | None = None
    """The time limit of a request; a caller's own deadline may end it sooner. The default is no limit."""
    datatypes: Literal["strict", "widen"] | None = None
    """The policy for datatypes: `strict` refuses requests with tensors that a dialect carries as a wider
    type; `widen` converts inputs to the model's types if those hold every value. The default converts only
    as the dialects need."""
    mirror: MirrorOptions | None = None
    """Copies to another model, with a comparison of the answers. The default is none."""

    @field_validator("split")
    @classmethod
    def _to_or_split(cls, split: Any, info: ValidationInfo) -> Any:
        if "to" not in info.data:
            return split
        to = info.data["to"]
        if to is None and split is None:
            raise ValueError("is missing, and so is 'to': a route has one of them")
        if to is not None and split is not None:
            raise ValueError("conflicts with 'to': a route has one of them")
        if split is not None:
            distinct("model", tuple(part.to for part in split))
            if not sum(part.weight for part in split):
                raise ValueError("has no weight above 0")
        return split

    @field_validator("sticky")
    @classmethod
    def _of_a_split(cls, sticky: Any, info: ValidationInfo) -> Any:
        if sticky is not None and info.data.get("to") is not None:
            raise ValueError("is for a split: here every request goes to one model")
        return sticky

    @field_validator("fallback")
    @classmethod
    def _elsewhere(cls, fallback: str | None, info: ValidationInfo) -> str | None:
        alone = [info.data.get("to")] if info.data.get("to") else []
        used = alone or [part.to for part in info.data.get("split") or () if part.weight]
        if used == [fallback]:
            raise ValueError(f"'{fallback}' is where the requests go already")
        return fallback

    @field_validator("mirror")
    @classmethod
    def _of_another(cls, mirror: MirrorOptions | None, info: ValidationInfo) -> MirrorOptions | None:
        if mirror is not None and mirror.to == info.data.get("to"):
            raise ValueError(f"'{mirror.to}' is where the requests go already: copies go to another model")
        return mirror
