"""Elected groups: the broker that drives a Raft member over its store and its network.

Allowed imports: ha.raft, ha.metadata_sync, and those of ha.
"""
