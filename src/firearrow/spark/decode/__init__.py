"""Decoding of stored records into Arrow columns, shared by live reads and store scans.

May import: firearrow.spark.errors, client, store, wire.
"""
