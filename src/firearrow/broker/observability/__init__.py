"""Statistics, Prometheus metrics, process usage and the event log.

Imports from broker.context, broker.tables and broker.timer, and from wire, net, config and procfs.
"""
