"""The pages of the admin address while models load."""

from __future__ import annotations

from collections.abc import Mapping

from interlingua.protocols.wire import HttpAnswer
from interlingua.translator.admin.handler import AdminAction, Page, document, plain

_LOADING = "models are being loaded"


async def _not_ready() -> HttpAnswer:
    return document({"ready": False, "reasons": [_LOADING]}, 503)


async def _not_yet() -> HttpAnswer:
    return plain(503, _LOADING, (("retry-after", "1"),))


LOADING_PAGES: Mapping[str, Page] = {"/health/ready": _not_ready, "/metrics": _not_yet, "/": _not_yet}
"""By path. The others do not exist yet."""

LOADING_ACTIONS: Mapping[str, AdminAction] = {"/reload": AdminAction(lambda _: _not_yet())}
