"""Blocking clients, derived from the asyncio ones, on an event loop in a background thread.

May import: the modules of `client`, `client.consumer`, `client.producer`, `net`.
"""
