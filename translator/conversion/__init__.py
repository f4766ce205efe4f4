"""One message from one dialect to another, with neither a server nor a connection, and what becomes of it.

``raw`` turns bytes into the messages of a transport and back, ``ends`` reads and writes those by the tables
of a dialect, as its server and as its client; ``convert`` puts two ends together and judges.
"""
