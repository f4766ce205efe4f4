"""Local models: a model, its versions, and what holds for every backend."""
