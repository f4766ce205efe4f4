"""Routes: which requests they take, whom those go to, and by which names. ``router`` has them."""
