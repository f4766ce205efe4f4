"""Authorities and certificates for tests, in files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Issued:
    """The files of a certificate and its key."""

    cert: str
    key: str


class Authority:
    """An authority whose certificate is in the file ``ca``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._ca = trustme.CA()
        self._folder = folder
        self.ca = str(folder / "ca.pem")
        self._ca.cert_pem.write_to_path(self.ca)

    def issue(self, *names: str, common_name: str | None = None, expired: bool = False) -> Issued:
        """A certificate for ``names``; each call writes new files."""
        not_after = datetime.now(UTC) - timedelta(days=1) if expired else None
        leaf = self._ca.issue_cert(*names, common_name=common_name, not_after=not_after)
        number = len(list(self._folder.iterdir()))
        found = Issued(str(self._folder / f"{number}.pem"), str(self._folder / f"{number}.key"))
        for index, blob in enumerate(leaf.cert_chain_pems):
            blob.write_to_path(found.cert, append=index > 0)
        leaf.private_key_pem.write_to_path(found.key)
        return found
