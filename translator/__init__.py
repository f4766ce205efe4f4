"""The program: configuration, router, pipeline, lifecycle, command line.

The only room that knows all the others. What a message looks like belongs to ``protocols``, what
answers it to ``runtime``.
"""
