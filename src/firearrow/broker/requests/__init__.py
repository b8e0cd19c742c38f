"""Dispatch of requests, responses, calls to clients and flow control.

Allowed imports: those of broker, its modules, and its subpackages pull, roles, send, tables.
"""
