"""Asks the servers of a configuration's upstreams what they are, and says plainly what is wrong.

``speech`` finds out what a server speaks, ``signatures`` holds what is stated of a model against what its
server tells, ``upstreams`` goes through a configuration. Only questions are asked: nothing is loaded, and no
model is run.
"""
