"""Statistics, Prometheus metrics, process usage and the event log."""
