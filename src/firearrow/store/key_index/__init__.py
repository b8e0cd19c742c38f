"""The key index: messages by key, unique key or tag.

Imports: `wire`, `store.filesystem`, `store.accelerated` and `store.commitlog`.
"""
