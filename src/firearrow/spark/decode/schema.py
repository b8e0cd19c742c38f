"""Names, types and descriptions of the columns of a topic; importable without PyArrow, for the documentation."""

from __future__ import annotations

from typing import Final

TYPES: Final = {
    "topic": "string", "brokerName": "string", "queueId": "int", "queueOffset": "bigint", "msgId": "string",
    "offsetMsgId": "string", "keys": "string", "tags": "string", "body": "binary", "properties": "map<string,string>",
    "flag": "int", "sysFlag": "int", "bornTimestamp": "timestamp", "bornHost": "string", "storeTimestamp": "timestamp",
    "storeHost": "string", "reconsumeTimes": "int", "preparedTransactionOffset": "bigint", "commitLogOffset": "bigint",
    "storeSize": "int", "bodyCRC": "int",
}  # fmt: skip
"""Spark types by column, in the order of the schema."""

MEANING: Final = {
    "topic": "topic",
    "brokerName": "name of the broker; null in store files, unless the option `brokerName` is given",
    "queueId": "queue id on that broker",
    "queueOffset": "offset in the queue",
    "msgId": "unique id set by the producer (UNIQ_KEY), else the offset id",
    "offsetMsgId": "id composed of the broker's address and the commit-log offset",
    "keys": "keys for queries; null if none",
    "tags": "tag; null if none",
    "body": "body, decompressed; `string` in a custom schema is allowed",
    "properties": "all properties; with `propertiesAs` `string`, or as `string` in a custom schema, as stored",
    "flag": "application-defined flag of the producer",
    "sysFlag": "compressed, transaction, IPv6 and other bits",
    "bornTimestamp": "creation time at the producer",
    "bornHost": "address of the producer",
    "storeTimestamp": "time of storage at the broker",
    "storeHost": "address of the broker",
    "reconsumeTimes": "number of failed consume attempts",
    "preparedTransactionOffset": "log offset of the half, delayed or timer message it was copied from",
    "commitLogOffset": "offset in the commit log",
    "storeSize": "size of the stored record in bytes",
    "bodyCRC": "checksum of the body as stored",
}
