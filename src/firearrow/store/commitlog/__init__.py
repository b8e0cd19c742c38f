"""The commit log: segments, appending, reading, columnar scans, truncation and replication.

Imports: `config`, `wire`, and the modules of `store`.
"""
