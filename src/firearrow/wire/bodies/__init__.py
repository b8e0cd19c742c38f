"""JSON bodies of requests and responses.

Imports only from `wire`.
"""
