"""``POST /reload`` of the admin address."""

from __future__ import annotations

from interlingua.protocols.wire import HttpAnswer
from interlingua.translator.admin.handler import document
from interlingua.translator.reload.reloader import Reloader

REFUSED = 422
"""The status of a configuration that cannot be applied (RFC 9110, 15.5.21)."""


async def reload_page(reloader: Reloader) -> HttpAnswer:
    """Reload, and report what has changed."""
    outcome = await reloader.reload()
    return document(outcome.document(), 200 if outcome.reloaded else REFUSED)
