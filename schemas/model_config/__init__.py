"""The contract of model configurations: what ``config.pbtxt`` holds, and what clients read of a model.

Triton defines it, model repositories and several dialects carry it. ``MODEL_CONFIG`` is the message class
``inference.ModelConfig``; between rooms a configuration travels as its serialized bytes.
"""

from typing import Any

from interlingua.schemas.protobuf import load_messages

MODEL_CONFIG: Any = load_messages(__name__, "model_config.desc")["inference.ModelConfig"]
