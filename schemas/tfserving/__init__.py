"""The wire contract of TensorFlow Serving: its services for predictions and models, and their messages.

``MESSAGES`` holds the message classes by full name, such as ``tensorflow.serving.PredictRequest``. Their pool
is private, so TensorFlow itself or one of its clients may be imported as well. The meaning of a message
belongs to ``protocols.tfserving``.
"""

from interlingua.schemas.protobuf import load_messages

MESSAGES = load_messages(__name__, "serving.desc")
