"""Network layer: listeners, connections, client channels, addresses and TLS. The only package that uses sockets.

    server, connection    the listening side of the remoting protocol
    channel               the client side of the remoting protocol
    stream                listening and dialling for raw byte protocols
    in_process            the same connections within one process, without sockets
    http_endpoint         a single page over HTTP
    unix_socket           local control sockets

Allowed imports: wire, config.
"""
