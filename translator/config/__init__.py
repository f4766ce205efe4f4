"""What the daemon is told by its YAML file: the schema, and reading it with every error at once.

``load`` is the way in; it gives a frozen, fully checked :class:`Config` or raises
:class:`ConfigError`. Nothing here opens a connection or loads a model.
"""

from interlingua.translator.config.document import ConfigError
from interlingua.translator.config.loader import load, parse
from interlingua.translator.config.options import Config

__all__ = ["Config", "ConfigError", "load", "parse"]
