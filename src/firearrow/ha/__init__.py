"""Replication between brokers.

    factory         chooses the kind of replication from the settings
    metadata_sync   copies topics, groups and offsets from a master or leader
    peers           authentication of the brokers of a group
    static          master and slaves with fixed roles (`brokerRole`)
    raft            the Raft consensus core, without I/O
    elected         a broker as a member of an elected group

Allowed imports: wire, store, net, broker, config, clock.
"""
