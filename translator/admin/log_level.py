"""``POST /logging`` of the admin address, as in Envoy: the level of the log, while the server runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl

from interlingua.protocols.wire import HttpAnswer, HttpRequest
from interlingua.schemas import LogSettings
from interlingua.translator.admin.handler import AdminAction, document, plain
from interlingua.translator.logs import setup

LEVELS = ("debug", "info", "warning", "error")

Change = Callable[[LogSettings], Awaitable[None]]
"""Applies settings in every process of the server."""


def log_level_action(change: Change) -> AdminAction:
    """``?level=LEVEL`` sets the level."""

    async def act(request: HttpRequest) -> HttpAnswer:
        given = parse_qsl(request.query, keep_blank_values=True)
        if len(given) != 1 or given[0][0] != "level" or given[0][1] not in LEVELS:
            return plain(400, f"usage: POST /logging?level=LEVEL, one of {', '.join(LEVELS)}")
        level = given[0][1]
        await change(setup.settings(level))
        return document({"level": level})

    return AdminAction(act, "logging")
