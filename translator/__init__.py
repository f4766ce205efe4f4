"""The program: configuration, routes, pipeline, lifecycle, command line, and what looks on: mirrors,
recordings, the operator's address. docs/architecture.md has a line for each package.

The only room that knows all the others. What a message looks like belongs to ``protocols``, what
answers it to ``runtime``.
"""
