"""Producers: sending, routing, batching, delays, transactions, request and reply.

May import: the modules of `client`, `client.connection`, `client.trace`, `net`, `wire`.
"""
