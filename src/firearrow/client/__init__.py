"""The Python client: producers and consumers for asyncio, and blocking clients derived from them.

    connection   client instances, connections, routes, heartbeats
    producer     sending
    consumer     push and pull consumers
    sync         the blocking clients
    trace        message trace

May import: `config`, `net`, `wire`, `clock`.
"""
