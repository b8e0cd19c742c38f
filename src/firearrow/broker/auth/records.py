"""The topics of a record that a request names by its position in the log."""

from __future__ import annotations

from firearrow.auth.gate import AccessDeniedError
from firearrow.broker.message import read_message
from firearrow.store.message_store import MessageStore
from firearrow.wire import properties
from firearrow.wire.message_ids import parse_offset_msg_id
from firearrow.wire.names import RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC

# A record there counts as a message of its destination, which the broker has written into its properties.
_HOLDING = frozenset((TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC))


class RecordTopics:
    """Finds the topics of records. A position without a record is refused: nothing shows that the sender may know it."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def at(self, offset: int) -> list[str]:
        """Return the topic of the record at an offset, and the original topic if it is a retry."""
        record = read_message(self._store, offset, check_crc=False)
        if record is None:
            raise AccessDeniedError(f"no message begins at offset {offset} of the log, so permission for it cannot be checked.")
        if record.topic in _HOLDING:
            return [_text(record.properties, b"REAL_TOPIC") or record.topic]
        if record.topic.startswith(RETRY_PREFIX):
            return [record.topic, *filter(None, [_text(record.properties, b"RETRY_TOPIC")])]
        return [record.topic]

    def named(self, msg_id: str) -> list[str]:
        """Return the topics of the record with an offset message id."""
        try:
            _, offset = parse_offset_msg_id(msg_id)
        except ValueError as error:
            raise AccessDeniedError(f"the id of the message is invalid: {error}") from None
        return self.at(offset)


def _text(raw: bytes, name: bytes) -> str:
    return (properties.find(raw, name) or b"").decode("utf-8", "replace")
