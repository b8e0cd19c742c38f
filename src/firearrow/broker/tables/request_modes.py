"""How a group consumes a topic when the broker assigns the queues: `config/messageRequestMode.json` (401, 402).

The mode is PULL unless somebody set POP for a topic and group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from firearrow.wire.bodies import MessageRequestModeSerializeWrapper
from firearrow.wire.bodies import SetMessageRequestModeRequestBody as RequestMode

PULL = "PULL"
POP = "POP"


class RequestModes:
    def __init__(self, save: Callable[[dict[str, Any]], None] = lambda table: None) -> None:
        self._modes: dict[str, dict[str, RequestMode]] = {}
        self._save = save

    def find(self, topic: str, group: str) -> RequestMode | None:
        return self._modes.get(topic, {}).get(group)

    def set(self, mode: RequestMode) -> None:
        self._modes.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self._save(self.to_json())

    def remove_topic(self, topic: str) -> None:
        if self._modes.pop(topic, None) is not None:
            self._save(self.to_json())

    def load(self, table: Mapping[str, Any]) -> None:
        """Takes over what the file held. Called once."""
        self._modes = MessageRequestModeSerializeWrapper.from_json(table).message_request_mode_map

    def take_over(self, theirs: Mapping[str, Any]) -> None:
        """A slave has the modes of its master."""
        before = self.to_json()
        self.load(theirs)
        if self.to_json() != before:
            self._save(self.to_json())

    def to_json(self) -> dict[str, Any]:
        return MessageRequestModeSerializeWrapper(self._modes).to_json()
