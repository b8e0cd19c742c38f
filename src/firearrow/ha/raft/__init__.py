"""Raft over the commit log: the consensus core and its files, without sockets, threads or clocks.

Allowed imports: wire, store, net.address. It does not import the rest of ha.
"""
