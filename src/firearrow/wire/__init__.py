"""Codec of the remoting protocol and of stored records: frames, headers, JSON bodies, records, properties, ids.

No module here opens a socket, reads a clock or touches a file. Any bytes from a peer yield a value or a `ProtocolError`.
Imports only the loader of native modules (`firearrow._native`).
"""
