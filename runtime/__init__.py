"""Everything that answers an IR request: local models on their backends, and upstream servers."""
