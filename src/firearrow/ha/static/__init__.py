"""Static replication: a master streams its commit log to its slaves.

Allowed imports: ha.metadata_sync, and those of ha.
"""
