"""The configuration of a model: what ``config.pbtxt`` says, and what clients get to see of it."""
