"""Reading side of the data source: batch and streaming reads from brokers, store scans and tables of the cluster's state.

May import: the modules of firearrow.spark, firearrow.spark.decode, admin, client, store, wire.
"""
