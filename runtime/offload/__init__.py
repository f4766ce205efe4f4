"""Threads and processes that decode and encode long messages in place of the event loop."""
