"""Mutual authentication of the brokers of a group on the replication ports.

    handshake   challenge and response with a shared secret, without I/O
    sealing     authenticated records on a plain connection, without I/O
    secret      the shared secret of a group
    security    the requirements of the settings
    links       accepting and dialling of authenticated connections
    refusals    the log of refused peers

Allowed imports: those of ha, except its other subpackages.
"""
