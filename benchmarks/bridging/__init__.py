"""What a request costs the process in the middle: this daemon, nginx, bare relays, a user's own bridge.

Run ``python -m benchmarks.bridging``. Ratios are the result: microseconds belong to one machine at one time.
"""
