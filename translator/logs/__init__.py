"""The log of the process on standard error: text, or one JSON object per line.

A message is a noun phrase; its fields are ``extra={"facts": {...}}``. Text appends them as ``key=value``,
JSON has them next to ``event``. Fields may come from clients, so a line has no character that a terminal or a
reader of lines would obey: line breaks, control and format characters are escaped, and in text a value with
a space, an equals sign, a quote or a backslash is quoted. No line has a credential.

This module imports nothing: the process that wraps output (``wrapper``) starts in milliseconds.
"""
