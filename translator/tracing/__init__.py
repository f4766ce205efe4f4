"""Traces of requests for OpenTelemetry: which are sampled, their spans, their export over OTLP."""
