"""Holds a configuration against what is there, and says plainly what is wrong.

``upstreams`` asks the servers of a configuration what they are: ``speech`` finds out what a server speaks,
``signatures`` holds what is stated of a model against what its server tells. Only questions are asked:
nothing is loaded there, and no model is run. ``models`` looks at the models that run here.
"""
