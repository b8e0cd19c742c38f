"""Roles of a broker: master, slave, member of an elected group; the interface to replication.

Allowed imports: those of broker, its modules, and its subpackages dedup, pull, requests, send, tables, transaction. Package ha
implements the interface and is not imported.
"""
