"""Bytes to values and back: frames, command headers, stored records, properties, ids, JSON bodies.

Nothing here opens a socket, reads a clock or touches a file. Whatever a peer sends gives a value or a `ProtocolError`.
"""
