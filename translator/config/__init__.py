"""The configuration file: its schema, and a parser that reports all errors at once.

``load`` returns a frozen, validated :class:`Config` or raises :class:`ConfigError`. Nothing here opens a
connection or loads a model."""

from interlingua.translator.config.document import ConfigError
from interlingua.translator.config.loader import load, parse, stated_log_format
from interlingua.translator.config.options import Config

__all__ = ["Config", "ConfigError", "load", "parse", "stated_log_format"]
