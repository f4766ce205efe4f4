"""Routes: which requests they accept, which models get these, and by which names."""
