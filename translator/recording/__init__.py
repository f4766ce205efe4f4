"""Recordings: requests and their answers in a file, in the tensor form, whatever the dialect.

``record`` defines one entry, ``layout`` its bytes, ``files`` the file format. ``tap`` and mirrors write
recordings; ``replay`` and ``translator.conversion`` read them."""
