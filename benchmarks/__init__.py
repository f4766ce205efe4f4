"""What a request costs: CPU time of the daemon, each row beside a bare server that only echoes.

Run ``python -m benchmarks``. Ratios are the result; microseconds are those of one machine at one time.
"""
