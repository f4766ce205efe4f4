"""Models from files: repositories, the live catalog of models, polling, loads and unloads."""
