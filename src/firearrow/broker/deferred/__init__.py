"""Deferred messages: routing to holding topics, delay levels, retries and dead letters.

Imports from broker.message, broker.context, broker.requests, broker.send and broker.tables, and from wire, store and net.
"""
