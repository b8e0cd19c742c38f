"""Pulls: authorization and read, subscriptions and filters, long polling.

Allowed imports: those of broker, its modules, and its subpackages observability, requests, sql92.
"""
