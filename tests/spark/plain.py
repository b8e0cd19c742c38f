"""Reference rows, decoded record by record with `wire`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

from firearrow.client.compression import decompress
from firearrow.client.message import ReceivedMessage
from firearrow.wire.message_ids import host_text, offset_msg_id
from firearrow.wire.properties import parse
from firearrow.wire.record import COMPRESSED, Record

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def message_row(message: ReceivedMessage) -> dict[str, Any]:
    """Return the row of a message that the producer did not compress."""
    return {
        "topic": message.topic,
        "brokerName": message.queue.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "keys": message.get("KEYS"),
        "tags": message.get("TAGS"),
        "body": message.body,
        "properties": [*message.properties.items(), *message.system_properties.items()],
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": _EPOCH + timedelta(milliseconds=message.born_ms),
        "bornHost": message.born_host,
        "storeTimestamp": _EPOCH + timedelta(milliseconds=message.store_ms),
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "commitLogOffset": message.commit_log_offset,
        "storeSize": message.store_size,
        "bodyCRC": crc32(message.body) & 0x7FFFFFFF,
    }


def row(record: Record, broker_name: str | None) -> dict[str, Any]:
    found = parse(record.properties.decode("utf-8", "replace"))
    offset_id = offset_msg_id(record.store_host, record.physical_offset)
    return {
        "topic": record.topic,
        "brokerName": broker_name,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "msgId": found.get("UNIQ_KEY", offset_id),
        "offsetMsgId": offset_id,
        "keys": found.get("KEYS"),
        "tags": found.get("TAGS"),
        "body": decompress(record.body, record.sys_flag) if record.sys_flag & COMPRESSED else record.body,
        "properties": list(found.items()),
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": _EPOCH + timedelta(milliseconds=record.born_timestamp),
        "bornHost": host_text(record.born_host),
        "storeTimestamp": _EPOCH + timedelta(milliseconds=record.store_timestamp),
        "storeHost": host_text(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "commitLogOffset": record.physical_offset,
        "storeSize": record.total_size,
        "bodyCRC": record.body_crc,
    }
