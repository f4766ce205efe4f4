"""Coverage-guided fuzzing of every decoder: ``python -m tests.fuzz`` (docs/testing.md)."""
