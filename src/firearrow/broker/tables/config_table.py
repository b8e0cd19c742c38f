"""Base of the tables of topics and groups: a configuration for each name, a data version, listeners and a file.

Invariants:
- Every change has its own data version. `data_version` is replaced, never modified: listeners may keep it. They are called at
  once, while it is the version of that change.
- A configuration in the table is replaced, never modified.
- An operator's change is on disk when the method returns (persistence.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

import orjson

from firearrow.broker.tables.persistence import EntryTexts, Save, Submit, TableFile
from firearrow.wire.bodies.topic import DataVersion, SubscriptionGroupConfig, TopicConfig
from firearrow.wire.body_schema import EncodedEntries

Config = TypeVar("Config", TopicConfig, SubscriptionGroupConfig)


class ConfigTable(Generic[Config]):
    """`save` writes the file, `submit` runs a job in the background."""

    def __init__(self, save: Save, submit: Submit) -> None:
        self.data_version = DataVersion()
        self._listeners: list[Callable[[str, Config | None], None]] = []
        self._table: dict[str, Config] = {}
        self._texts = EntryTexts()
        self._encoded = EncodedEntries()
        self._file = TableFile(save, self.file_form, submit)

    def subscribe(self, listener: Callable[[str, Config | None], None]) -> None:
        """Call `listener(name, config)` for every change from now on; after a deletion `config` = None."""
        self._listeners.append(listener)

    def find(self, name: str) -> Config | None:
        return self._table.get(name)

    def all(self) -> Mapping[str, Config]:
        return self._table

    def encoded(self) -> orjson.Fragment:
        """Return the table as JSON. Entries that have not changed since the last call are not encoded again."""
        return self._encoded.joined(self._table)

    def file_form(self) -> dict[str, Any]:
        """Return the contents of the file, with pre-rendered entries. Called in any thread."""
        raise NotImplementedError

    def restore(self, name: str, config: Config | None) -> None:
        """Apply the previous master's configuration, under the version of the new term."""
        if self._table.get(name) == config:
            return
        if config is not None:
            self._keep(name, config)
        else:
            self._drop(name)
        self._tell(name, config)

    def begin_term(self, term: int, now_ms: int) -> None:
        """Start a term as elected master. Its data version takes precedence over that of an earlier master."""
        self.data_version = replace(self.data_version, state_version=term)
        self.next_version(now_ms)
        self._file.soon()

    def next_version(self, now_ms: int) -> None:
        """Create a new data version, because the table or the registration has changed."""
        version = self.data_version
        self.data_version = replace(version, counter=version.counter + 1, timestamp=max(now_ms, version.timestamp))

    def _load_version(self, table: Mapping[str, Any]) -> None:
        version = table.get("dataVersion")
        if isinstance(version, dict):
            self.data_version = DataVersion.from_json(version)

    def _put(self, name: str, config: Config, now_ms: int) -> None:
        self._keep(name, config)
        self.next_version(now_ms)
        self._tell(name, config)

    def _keep(self, name: str, config: Config) -> None:
        self._table[name] = config
        self._texts.put(name, config)

    def _drop(self, name: str) -> bool:
        """Remove an entry. Return whether it existed."""
        self._texts.pop(name)
        return self._table.pop(name, None) is not None

    def _tell(self, name: str, config: Config | None) -> None:
        for listener in self._listeners:
            listener(name, config)
