"""The dashboard: traffic over time, the state of every part, events for browsers, and the page itself."""
