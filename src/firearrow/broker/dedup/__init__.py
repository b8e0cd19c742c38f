"""Recognition of repeated sends, by producer sequence number or unique key.

Imports from broker.send.validation, broker.requests, broker.tables and broker.timer, and from wire and store.
"""
