"""The configuration of a model: ``config.pbtxt``, and its form for clients."""
