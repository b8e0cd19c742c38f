"""Deferred messages: routing to holding topics, delay levels, retries and dead letters."""
