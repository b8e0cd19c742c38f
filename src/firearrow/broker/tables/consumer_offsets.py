"""Consumer offsets of each group and queue (`config/consumerOffset.json`), pending resets and pull offsets.

Offsets are kept per `topic@group` and queue, and mean the next message to consume. The last commit wins, also backwards: a
consumer that was reset goes back on purpose.

Three tables:
- offsets: committed offsets. Saved every `flushConsumerOffsetInterval` and at shutdown.
- pull offsets: the positions of pulls, committed or not. Saved with the offsets.
- resets: an operator's request to move a group to an offset. While a reset is pending for a queue, commits are ignored (they are
  older than the reset) and queries return it. The group's next pull of the queue is redirected there and completes the reset. The
  reset is also stored as the committed offset, so that it survives a restart of the broker.

Broadcasting groups keep their offsets themselves; entries `topic@group@broadcast` that Apache RocketMQ wrote are kept.

Cost: a commit is one string and two dictionary look-ups.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.requests.responses import Refused
from firearrow.broker.tables.topics import MAX_QUEUES
from firearrow.net.server import Connection
from firearrow.wire.bodies.admin import ConsumerOffsetSerializeWrapper
from firearrow.wire.bodies.topic import DataVersion
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, encode_response
from firearrow.wire.headers.client import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader

SEPARATOR = "@"

# Apache RocketMQ calls the part of the log that would fit into this machine's memory "in memory".
_MEMORY_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class OffsetTable:
    def __init__(self, *, version_step: int = 500) -> None:
        self.data_version = DataVersion()
        self.dirty = False  # something to save
        self._version_step = version_step
        self._commits = 0
        self._offsets: dict[str, dict[int, int]] = {}
        self._groups: dict[str, dict[str, None]] = {}  # topic -> the groups that have offsets of it
        self._pulled: dict[str, dict[int, int]] = {}
        self._resets: dict[str, dict[int, int]] = {}

    # Consumers.

    def commit(self, group: str, topic: str, queue_id: int, offset: int, now_ms: int = 0) -> bool:
        """Commit an offset. Return False if it is ignored because a reset is pending."""
        key = f"{topic}@{group}"
        if self._resets and queue_id in self._resets.get(key, ()):
            return False
        queues = self._offsets.get(key)
        if queues is None:
            queues = self._entry(topic, group)
        if queues.get(queue_id) != offset:  # clients commit every few seconds, whether they have consumed or not
            queues[queue_id] = offset
            self.dirty = True
        self._commits += 1
        if self._commits % self._version_step == 0:
            version = self.data_version
            self.data_version = replace(version, counter=version.counter + 1, timestamp=max(now_ms, version.timestamp))
        return True

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the committed offset or that of a pending reset; None without either."""
        key = f"{topic}@{group}"
        if self._resets:
            reset = self._resets.get(key, {}).get(queue_id)
            if reset is not None:
                return reset
        offset = self._offsets.get(key, {}).get(queue_id)
        return None if offset is None or offset < 0 else offset

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Record that messages below `offset` were pulled."""
        key = f"{topic}@{group}"
        queues = self._pulled.get(key)
        if queues is None:
            queues = self._pulled[key] = {}
        queues[queue_id] = offset

    def query_pulled(self, group: str, topic: str, queue_id: int) -> int | None:
        return self._pulled.get(f"{topic}@{group}", {}).get(queue_id)

    # Resets.

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Schedule a reset of the group to `offset`."""
        key = f"{topic}@{group}"
        self._resets.setdefault(key, {})[queue_id] = offset
        self._entry(topic, group)[queue_id] = offset
        self._pulled.get(key, {}).pop(queue_id, None)
        self.dirty = True

    def set(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the offset of a group that is not connected."""
        self._resets.get(f"{topic}@{group}", {}).pop(queue_id, None)
        self._pulled.get(f"{topic}@{group}", {}).pop(queue_id, None)
        self.commit(group, topic, queue_id, offset)

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return and clear the pending reset of a queue. A pull calls this before it commits."""
        if not self._resets:
            return None
        key = f"{topic}@{group}"
        queues = self._resets.get(key)
        if not queues:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._resets[key]
        return offset

    # Operators.

    def offsets_of(self, group: str, topic: str) -> dict[int, int]:
        return dict(self._offsets.get(f"{topic}@{group}", {}))

    def topics_of(self, group: str) -> list[str]:
        """Return the topics with offsets of the group."""
        return [topic for topic, groups in self._groups.items() if group in groups]

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups with offsets of the topic."""
        return list(self._groups.get(topic, ()))

    def topics(self) -> list[str]:
        """Return the topics with offsets of any group."""
        return list(self._groups)

    def clone(self, source: str, target: str, topic: str) -> bool:
        """Copy the offsets of `source` to `target`. Return False if there are no offsets to copy."""
        queues = self._offsets.get(f"{topic}@{source}")
        if not queues:
            return False
        copied = self._entry(topic, target)
        copied.clear()
        copied.update(queues)
        self._resets.pop(f"{topic}@{target}", None)
        self.dirty = True
        return True

    def remove_topic(self, topic: str) -> None:
        self._remove(key for key in self._all_keys() if key.partition(SEPARATOR)[0] == topic)

    def remove_group(self, group: str) -> None:
        self._remove(key for key in self._all_keys() if key.partition(SEPARATOR)[2] in (group, f"{group}@broadcast"))

    # File form.

    def load(self, table: Mapping[str, Any]) -> None:
        """Load the contents of consumerOffset.json."""
        version = table.get("dataVersion")
        if isinstance(version, dict):
            self.data_version = DataVersion.from_json(version)
        self._pulled = _read_table(table.get("pullOffsetTable"))
        self._update(_read_table(table.get("offsetTable")))

    def take_over(self, theirs: ConsumerOffsetSerializeWrapper) -> None:
        """Take over the master's offsets on a slave."""
        self.data_version = theirs.data_version
        self._update(theirs.offset_table)
        self.dirty = True

    def take_changes(self) -> dict[str, Any] | None:
        """Return the table to save, or None if it has not changed since the last call."""
        if not self.dirty:
            return None
        self.dirty = False
        return self.to_json()

    def to_json(self) -> dict[str, Any]:
        """Return the contents of the file. The large tables are pre-rendered JSON, which is many times faster.

        May be called in another thread than the one that commits: entries are taken in single steps.
        """
        return {
            "dataVersion": self.data_version.to_json(),
            "groupTopicMap": self._topics_of_groups(),
            "offsetTable": _table_text(self._offsets),
            "pullOffsetTable": _table_text(self._pulled),
        }

    def wrapper(self) -> ConsumerOffsetSerializeWrapper:
        """Return the table as a response body."""
        offsets = {key: dict(sorted(queues.items())) for key, queues in self._offsets.items()}
        pulled = {key: dict(sorted(queues.items())) for key, queues in self._pulled.items()}
        return ConsumerOffsetSerializeWrapper(offsets, self.data_version, self._topics_of_groups(), pulled)

    def is_empty(self) -> bool:
        return not self._offsets

    def _update(self, table: Mapping[str, dict[int, int]]) -> None:
        for key, queues in table.items():
            topic, _, group = key.partition(SEPARATOR)
            self._entry(topic, group).update(queues)

    def _entry(self, topic: str, group: str) -> dict[int, int]:
        key = f"{topic}@{group}"
        queues = self._offsets.get(key)
        if queues is None:
            queues = self._offsets[key] = {}
            if SEPARATOR not in group:  # otherwise it was kept for a broadcasting group
                self._groups.setdefault(topic, {})[group] = None
        return queues

    def _topics_of_groups(self) -> dict[str, list[str]]:
        topics_of: dict[str, list[str]] = {}
        for topic, groups in list(self._groups.items()):
            for group in list(groups):
                topics_of.setdefault(group, []).append(topic)
        return topics_of

    def _all_keys(self) -> list[str]:
        return list({**self._offsets, **self._pulled, **self._resets})

    def _remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            topic, _, group = key.partition(SEPARATOR)
            self._groups.get(topic, {}).pop(group, None)
            self._offsets.pop(key, None)
            self._pulled.pop(key, None)
            self._resets.pop(key, None)
            self.dirty = True


def _read_table(value: Any) -> dict[str, dict[int, int]]:
    """Parse `topic@group` -> queue -> offset, with quoted or unquoted keys. Malformed entries are ignored."""
    table: dict[str, dict[int, int]] = {}
    for key, queues in (value if isinstance(value, dict) else {}).items():
        if isinstance(queues, dict):
            table[key] = {int(queue_id): int(offset) for queue_id, offset in queues.items()}
    return table


def _table_text(table: dict[str, dict[int, int]]) -> orjson.Fragment:
    """Render a table like Apache RocketMQ: one queue per line, numbers unquoted."""
    entries = []
    for key, queues in list(table.items()):
        if queues:
            lines = ",\n\t\t\t".join([f"{queue_id}:{offset}" for queue_id, offset in sorted(queues.items())])
            entries.append(f"{orjson.dumps(key).decode()}:{{\n\t\t\t{lines}\n\t\t}}")
    return orjson.Fragment("{\n\t\t" + ",\n\t\t".join(entries) + "\n\t}" if entries else "{}")


# Requests: 14, 15.


def handlers(broker: BrokerContext) -> dict[int, Handler]:
    offsets = broker.offsets

    def query_consumer_offset(conn: Connection, request: Command, now_ms: int) -> bytes:
        header = QueryConsumerOffsetRequestHeader.decode(request.ext)
        # The group need not exist. Pull consumers of Java 4.9 query before their first heartbeat, and take any error as "no
        # offset": they would skip everything stored so far.
        offset = offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset is None:
            if header.set_zero_if_not_found is False or not _begins_at_zero(broker, header.topic, header.queue_id):
                raise Refused(ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first", {})
            offset = 0
        return encode_response(request, ResponseCode.SUCCESS, ext={"offset": offset})

    def update_consumer_offset(conn: Connection, request: Command, now_ms: int) -> bytes:
        header = UpdateConsumerOffsetRequestHeader.decode(request.ext)
        if broker.groups.find(header.consumer_group) is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.consumer_group} not exist!", {})
        if broker.topics.find(header.topic) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} not exist!", {})
        if not 0 <= header.queue_id < MAX_QUEUES:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"queueId is {header.queue_id}; expected 0 to {MAX_QUEUES - 1}", {})
        taken = offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset, now_ms)
        return encode_response(request, ResponseCode.SUCCESS, None if taken else "Offset has been previously reset", {})

    return {
        RequestCode.QUERY_CONSUMER_OFFSET: query_consumer_offset,
        RequestCode.UPDATE_CONSUMER_OFFSET: update_consumer_offset,
    }


def _begins_at_zero(broker: BrokerContext, topic: str, queue_id: int) -> bool:
    """Return whether a group without an offset starts at the beginning of the queue, whatever it asked for.

    It does while the first message of the queue still exists and is in memory. Clients rely on it: the first messages of a topic
    are often older than its first consumer.

    It also does in a queue that never had a message, as in Apache RocketMQ 4.9. Apache 5.5 answers "not found" there. The client
    then asks for the end of the queue in a second request and skips a message stored between the two. Every start position means
    offset 0 in such a queue, so the answer is right for all clients. Those that need to know whether an offset was committed set
    `setZeroIfNotFound` to false.
    """
    queue = broker.store.find_queue(topic, queue_id)
    if queue is None:
        config = broker.topics.find(topic)
        return config is not None and 0 <= queue_id < config.read_queue_nums
    if queue.min_offset > 0:
        return False
    if queue.max_offset == 0:
        return True
    first = queue.entry(0)
    near = _MEMORY_BYTES * broker.store_settings.access_message_in_memory_max_ratio // 100
    return first is not None and broker.store.max_offset - first[0] <= near
