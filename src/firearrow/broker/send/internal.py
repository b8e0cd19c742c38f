"""Messages stored by the broker itself: due delayed and timed messages, retries, dead letters, committed transactions, replies.

They are appended, written and flushed together with clients' messages of the same group commit. No producer waits for a reply;
each service keeps enough state to store its messages again after a crash.
"""

from __future__ import annotations

from collections.abc import Callable

from firearrow.broker.message import BrokerMessage
from firearrow.broker.observability.stats import BrokerStats
from firearrow.store.message_store import MessageStore
from firearrow.wire.java_hash import tags_code_of


class InternalWriter:
    """Appends `BrokerMessage`s. `schedule_commit` makes sure that appended messages are written soon."""

    def __init__(self, store: MessageStore, stats: BrokerStats, schedule_commit: Callable[[], None]) -> None:
        self._store = store
        self._stats = stats
        self._schedule_commit = schedule_commit

    def deliver(self, message: BrokerMessage, now_ms: int) -> None:
        """Append `message` to its queue, without deferral, with the hash of its TAGS."""
        message.tags_code = tags_code_of(message.properties)
        self.append(message, now_ms)

    def append(self, message: BrokerMessage, now_ms: int) -> None:
        """Append `message` to its queue with its `tags_code`, and set its offsets."""
        queue = self._store.queue(message.topic, message.queue_id)
        body, raw = message.body, message.properties
        message.queue_offset = queue.next_offset
        message.physical_offset = self._store.append(
            queue,
            body,
            raw,
            message.tags_code,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_ms=message.born_ms,
            born_host=message.born_host,
            store_ms=now_ms,
            reconsume_times=message.reconsume_times,
            prepared_offset=message.prepared_offset,
        )
        self._stats.topic_put(message.topic).add(1, queue.base_size + len(body) + len(raw))
        self._schedule_commit()
