"""Models on remote servers: the upstream, its pool of members, and its models."""
