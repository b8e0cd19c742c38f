"""Sends: validation and append, group commit, acknowledgement policies, replies.

Allowed imports: those of broker, its modules, and its subpackages dedup, deferred, observability, pull, requests, transaction.
"""
