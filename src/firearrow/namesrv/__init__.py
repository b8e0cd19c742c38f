"""The name server: registered brokers, the routes of their topics, and a small key-value configuration.

Imports from `wire`, `store`, `net`, `config` and `clock`.
"""
