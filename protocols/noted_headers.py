"""Headers that note which of them a codec reads: what it makes of a message depends on no others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class NotedHeaders(Mapping[str, str]):
    """The headers ``given``. ``names`` are those that were looked up, in that order, also without success;
    ``all``: they were iterated, so that each counts."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given
        self.names: dict[str, None] = {}
        self.all = False

    def __getitem__(self, name: str) -> str:
        self.names[name] = None
        return self.given[name]

    def __contains__(self, name: object) -> bool:
        self.names[str(name)] = None
        return name in self.given

    def __iter__(self) -> Iterator[str]:
        self.all = True
        self.names.update(dict.fromkeys(self.given))
        return iter(self.given)

    def __len__(self) -> int:
        return len(self.given)


def names_of(headers: Mapping[str, str]) -> frozenset[str]:
    """Those that were looked up in ``headers``, if they are noted."""
    return frozenset(headers.names) if isinstance(headers, NotedHeaders) else frozenset()
