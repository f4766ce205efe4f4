"""HTTP, as a listener on an engine of our own or on aiohttp, and as a client."""
