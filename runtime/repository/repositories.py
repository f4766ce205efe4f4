"""The repositories of the server: which of them holds a model, and what clients may do with it.

Of two repositories with one model the later counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.repository.files import Repository
from interlingua.runtime.repository.model_folders import is_model_name
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    ModelControl,
    invalid_tensor,
    unavailable,
    unsupported,
)

_NOT_ALLOWED = "explicit model load / unload is not allowed if polling is enabled"
_OVERRIDES = ("none", "config", "files")

_log = logging.getLogger(__name__)


class Repositories:
    """``repositories`` in the order of the configuration; clients cannot load or unload ``fixed`` models,
    which the configuration defines."""

    def __init__(self, repositories: Sequence[Repository] = (), fixed: Iterable[str] = ()) -> None:
        self.by_precedence = tuple(reversed(repositories))
        self.fixed = frozenset(fixed)

    def named(self, repository: str) -> tuple[Repository, ...]:
        """The repositories of that name; all for an empty one. Raises UNSUPPORTED."""
        if not repository:
            return self.by_precedence
        named = tuple(each for each in self.by_precedence if each.name == repository)
        if not named:
            raise unsupported(
                f"'repository_name' specification is not supported for '{repository}', which is none of "
                f"the repositories here"
            )
        return named

    def home(self, name: str, chosen: Iterable[Repository] | None = None) -> Repository | None:
        """The repository among ``chosen``, or among all, that holds model ``name`` now. Reads folders."""
        chosen = self.by_precedence if chosen is None else chosen
        return next((each for each in chosen if each.holds(name)), None)

    def controlled_home(self, name: str) -> Repository | None:
        """The repository of model ``name`` if clients may load it. Reads folders."""
        home = None if name in self.fixed else self.home(name)
        return home if home is not None and home.controlled else None

    def home_of_files(self, name: str, chosen: Iterable[Repository]) -> Repository | None:
        """The repository among ``chosen`` for a model whose files are all sent, which needs no folder."""
        if not is_model_name(name):
            return None
        return next((each for each in chosen if each.controlled), None)

    def check_control(self, name: str, home: Repository | None) -> None:
        """Raise UNAVAILABLE if clients may not control ``name``, of the repository ``home``."""
        allowed = home.controlled if home else any(each.controlled for each in self.by_precedence)
        if not allowed or name in self.fixed:
            raise unavailable(f"{_NOT_ALLOWED}: model '{name}'", retryable=False)

    def check_any_control(self) -> None:
        """Raise UNAVAILABLE if clients may control no repository."""
        if not any(each.controlled for each in self.by_precedence):
            raise unavailable(_NOT_ALLOWED, retryable=False)


def check_overrides(name: str, repository: Repository, control: ModelControl) -> None:
    """Raise FORBIDDEN for overrides that ``repository`` does not allow, INVALID_TENSOR for files without a
    configuration."""
    if control.files and control.config is None:
        raise invalid_tensor(
            f"failed to load '{name}', override model directory requires the override of its config",
            origin=name,
        )
    overridden = "files" if control.files else "config" if control.config is not None else "none"
    if _OVERRIDES.index(overridden) > _OVERRIDES.index(repository.overrides):
        raise InferenceError(
            ErrorCode.FORBIDDEN,
            f"failed to load '{name}', this repository does not allow clients to give a model's {overridden}",
            origin=name,
        )


def names_in(repository: Repository) -> list[str]:
    """The models that ``repository`` holds now; none, and a warning, if it is unreadable."""
    try:
        return repository.names()
    except LoadError as error:
        _log.warning("repository index unavailable", extra={"facts": {"reason": str(error)}})
        return []
