"""The process that a Python model runs in, and what passes between it and the server.

``worker`` is the program of that process, ``triton_python_backend_utils`` what a model imports there;
``process`` is the server's side. ``channel``, ``regions`` and ``packing`` are used by both. Whatever the
worker imports of ours is hidden from the model again, so the names of its own modules are free.
"""
