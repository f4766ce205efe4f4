"""A signature in a separate file, for models outside the configuration."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from interlingua.schemas import Signature
from interlingua.translator.config.document import ConfigError, Document
from interlingua.translator.config.models import SignatureOptions


def read_signature(path: str | Path) -> Signature:
    """The signature in a file of YAML or JSON, with the keys of ``signature:`` in a configuration. Raises
    ``ValueError`` for an invalid or unreadable file."""
    try:
        document = Document(Path(path).read_text(encoding="utf-8", errors="replace"), str(path))
        if document.problems:
            raise ConfigError(str(path), document.problems)
        return SignatureOptions.model_validate(document.data).build()
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        raise ValueError(f"{path}: {'; '.join(faults)}") from error
    except (ConfigError, OSError) as error:
        raise ValueError(str(error)) from error
