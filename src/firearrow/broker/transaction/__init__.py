"""Transactional messages: half messages, decisions, checks and recovery.

Imports from broker.deferred, broker.message, broker.send, broker.tables and broker.requests, and from wire, store and net.
"""
