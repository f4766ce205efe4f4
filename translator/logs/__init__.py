"""The log of the process on standard error: text, or one JSON object per line.

A message is a noun phrase; its fields are ``extra={"facts": {...}}``. Text appends them as ``key=value``,
JSON has them next to ``event``. Fields may come from clients, so a line has no character that a terminal or a
reader of lines would obey: line breaks, control and format characters are escaped. No line has a credential.
"""

from __future__ import annotations

from interlingua.translator.logs.setup import AUDIT, add_audit_file, apply, set_up, settings, write

__all__ = ["AUDIT", "add_audit_file", "apply", "set_up", "settings", "write"]
