"""Client instances: connections, routes, heartbeats, and requests from brokers to clients.

May import: the modules of `client`, `client.producer` (message ids, replies), `net`, `wire`.
"""
