"""Tables of the broker: topics, groups, consumer offsets, clients, queue locks and their persistence.

Imports from broker.context, broker.message, broker.pull and broker.requests, and from wire, store and net.
"""
