"""Roles of a broker: master, slave, member of an elected group; the interface to replication, which package ha implements."""
