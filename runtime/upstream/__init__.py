"""Models on other servers: the upstream, its pool of members, and the models behind it."""
