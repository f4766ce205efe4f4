"""The operator's own address: health, metrics, reports and a dashboard."""
