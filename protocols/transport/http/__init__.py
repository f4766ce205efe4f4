"""HTTP, as a listener and as a client, each on an engine of our own or on aiohttp."""
