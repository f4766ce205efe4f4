"""Converts one message from one dialect to another, without a server, and reports what became of it.

``raw`` turns bytes into the messages of a transport and back, ``codec`` decodes and encodes these as the
server and as the client of a dialect, ``convert`` combines two dialects and judges.
"""
