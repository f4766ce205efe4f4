"""The process of a Python model, and its messages with the server.

``worker`` is the program of that process, ``triton_python_backend_utils`` what a model imports there;
``process`` is the server's side. Both use ``channel``, ``regions`` and ``packing``. The worker hides its own
imports from the model, so that the names of the model's modules are free.
"""
