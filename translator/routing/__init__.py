"""Routes: which requests they take, whom those go to, and by which names. ``translator.router`` has them."""
