"""`firearrow up --cluster FORM`: the members of a cluster as processes, and `firearrow cluster kill|stop|start|status`.

May import the settings of broker, namesrv and store, auth, net, wire, config and cli.servers.
"""
