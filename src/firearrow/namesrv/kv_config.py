"""Key-value configuration (namespace -> key -> value) and the format of its file.

The file is Apache's `kvConfig.json`: one JSON object `{"configTable":{namespace:{key:value}}}`. The server reads and
writes the file. The namespace ORDER_TOPIC_CONFIG holds the order configuration of topics (`broker-a:4;broker-b:4`), which brokers
receive in the response to their registration.
"""

from __future__ import annotations

from typing import Any

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"


class KvConfig:
    def __init__(self, table: dict[str, dict[str, str]] | None = None) -> None:
        self._table: dict[str, dict[str, str]] = table or {}
        self.size = sum(len(key) + len(value) for keys in self._table.values() for key, value in keys.items())

    @classmethod
    def from_json(cls, value: Any) -> KvConfig:
        """Build the table from the parsed file. Raise ValueError if it is not such a table."""
        namespaces = value.get("configTable") if isinstance(value, dict) else None
        if namespaces is None:
            namespaces = {}
        if not isinstance(namespaces, dict) or not all(isinstance(keys, dict) for keys in namespaces.values()):
            raise ValueError("expected a JSON object with configTable: namespace -> key -> value")
        return cls({name: {key: str(value) for key, value in keys.items()} for name, keys in namespaces.items()})

    def to_json(self) -> dict[str, Any]:
        """Return a copy of the table, which may be written in another thread."""
        return {"configTable": {namespace: dict(keys) for namespace, keys in self._table.items()}}

    def put(self, namespace: str, key: str, value: str) -> None:
        if namespace not in self._table:
            self._table[namespace] = {}
            self.size += len(namespace)
        before = self._table[namespace].get(key)
        self.size += len(value) - len(before) if before is not None else len(key) + len(value)
        self._table[namespace][key] = value

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> bool:
        """Delete a key. Return True if it existed."""
        value = self._table.get(namespace, {}).pop(key, None)
        if value is None:
            return False
        self.size -= len(key) + len(value)
        return True

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return all keys of a namespace, or None if it was never used."""
        return self._table.get(namespace)
