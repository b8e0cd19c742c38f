"""Consumers: push and pull, allocation of queues, pulling, dispatching to listeners, offsets and retries.

May import: the modules of `client`, `client.connection`, `client.producer`, `client.trace`, `net`, `wire`.
"""
