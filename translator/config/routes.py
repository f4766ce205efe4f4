"""The schema of a route: which requests it takes, whom they go to, and what happens on the way.

The sentence under an option is its documentation, as in ``options``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from interlingua.protocols.section import Seconds, Section, Text
from interlingua.translator.config.mirror import MirrorOptions
from interlingua.translator.config.references import KnownDialect, KnownListener, KnownModel
from interlingua.translator.config.values import ParameterValue, distinct


class MatchOptions(Section):
    """Which requests take a route: those for which all of this is so. In texts `*` and `?` stand for any
    characters, `[ab]` for one of them."""

    model: Text = "*"
    """The model asked for."""
    dialect: KnownDialect | None = None
    """The caller's dialect. The default is any."""
    listener: KnownListener | None = None
    """The `listen` address of the listener that was asked. The default is any."""
    version: str | None = None
    """The version asked for; `""` is that none is. The default is any."""
    headers: dict[Text, Text] = Field(default={})
    """Headers of HTTP, or metadata of gRPC, by name in any case."""
    parameters: dict[Text, ParameterValue] = Field(default={})
    """Parameters of a request for inference. A number is equal to one of its own type alone. What is no
    inference has none, and so does not take such a route."""


class PartOptions(Section):
    """A share of the requests."""

    to: KnownModel
    """The model that gets them."""
    weight: Annotated[float, Field(ge=0)] = 1.0
    """Its share, against the weights of the others; 0 for none."""


class StickyOptions(Section):
    """What keeps requests of a split together, beside sequences, which always stay at one model."""

    header: Text
    """The header, or metadata, by name: requests with the same value go to the same model, whichever
    process splits them, until weights change. Those without it are shared out one by one."""


class RenameOptions(Section):
    """The callers' names of tensors and the names that the model has for them."""

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
    """Sends requests to another model than the one they name. The first route that matches wins."""

    match: MatchOptions = Field(default_factory=MatchOptions)
    """Which requests. The default is all."""
    to: KnownModel | None = None
    """The model that answers them. A route has this or `split`."""
    split: Annotated[tuple[PartOptions, ...], Field(min_length=1)] | None = Field(
        default=None, validate_default=True
    )
    """The models that answer them, each its share."""
    sticky: StickyOptions | None = None
    """What keeps requests of a split together. The default is nothing but sequences."""
    rename: RenameOptions = Field(default_factory=RenameOptions)
    """What the callers call the tensors. The default is as the model does."""
    versions: dict[str, str] = Field(default={})
    """The model's versions by the callers'; `"*"` is any other one, and none, and `""` lets the model
    choose. What is not here is as the model has it."""
    fallback: KnownModel | None = None
    """The model that answers in place of one that is not loaded, cannot be reached or has too much to do:
    where the request has not begun there, and is not in the middle of a sequence."""
    timeout_secs: Seconds | None = None
    """How long a request may take; a caller's own deadline may end it sooner. The default is no such
    limit."""
    datatypes: Literal["strict", "widen"] | None = None
    """What to do about datatypes that change: `strict` refuses requests with tensors that a dialect on their
    way carries as a wider type; `widen` turns inputs into the model's types where those hold each value. The
    default is to do what the dialects need."""
    mirror: MirrorOptions | None = None
    """Copies to another model, whose answers are compared. The default is none."""

    @field_validator("split")
    @classmethod
    def _to_or_split(cls, split: Any, info: ValidationInfo) -> Any:
        if "to" not in info.data:
            return split
        to = info.data["to"]
        if to is None and split is None:
            raise ValueError("is missing, and so is 'to': a route has one of them")
        if to is not None and split is not None:
            raise ValueError("stands beside 'to': a route has one of them")
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
