"""Timer messages: admission, the service around the timer wheel, metrics and recall.

Imports from broker.deferred, broker.message, broker.send and broker.requests, and from wire, store and net.
"""
