"""Recordings: requests and their answers in a file, as the tensor form has them, whatever the dialect was.

``record`` is what is kept of one request, ``layout`` how that becomes bytes, ``files`` writes and reads files
of them. Who writes: ``tap``, and mirrors. Who reads: ``replay``, and ``translator.conversion``.
"""
