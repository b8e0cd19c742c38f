"""Message trace: records of sends and consumptions in the trace topic.

May import: the modules of `client`, `client.producer`, `wire`.
"""
