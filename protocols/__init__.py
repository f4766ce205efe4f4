"""The dialects: bytes to IR and back, sans-IO; and the transports that carry the bytes.

Each dialect is a folder with the same file names: ``codec`` (pure functions, both directions),
``server`` (the endpoints it offers, as tables), ``client`` (the calls it makes to an upstream, as
tables), ``capability`` (what it can and cannot carry). ``dialect.py`` says what the tables are made
of, ``wire.py`` what passes between a table and a transport, ``registry.py`` lists the dialects.
"""
