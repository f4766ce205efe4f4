"""What ``interlingua serve --example`` serves: a classifier of handwritten digits, and an image for it.

``config.yaml`` is the configuration of ``interlingua serve PATH`` too. The model and the image are links to
examples/; the built distributions have the files themselves.
"""
