"""The path of a request: pipeline, dispatch, operations, observation, routing, request metrics.

Nothing here knows the configuration or a transport; ``translator.assembly`` puts the parts together.
"""
