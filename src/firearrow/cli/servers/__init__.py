"""`firearrow up`, `namesrv` and `broker`: options and property files, data directory, processes, ready file.

May import broker, namesrv, ha, store, net, config and cli.local_cluster.
"""
