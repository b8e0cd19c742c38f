"""The columns of a topic as a table, with nothing that needs to be installed."""

from __future__ import annotations

from typing import Final

TYPES: Final = {
    "topic": "string", "brokerName": "string", "queueId": "int", "queueOffset": "bigint", "msgId": "string",
    "offsetMsgId": "string", "keys": "string", "tags": "string", "body": "binary", "properties": "map<string,string>",
    "flag": "int", "sysFlag": "int", "bornTimestamp": "timestamp", "bornHost": "string", "storeTimestamp": "timestamp",
    "storeHost": "string", "reconsumeTimes": "int", "preparedTransactionOffset": "bigint", "commitLogOffset": "bigint",
    "storeSize": "int", "bodyCRC": "int",
}  # fmt: skip
"""Column -> Spark's type, in the order of the schema."""

MEANING: Final = {
    "topic": "topic",
    "brokerName": "name of the broker; null in store files, unless the option `brokerName` says it",
    "queueId": "number of the queue on that broker",
    "queueOffset": "place in the queue",
    "msgId": "the producer's id (UNIQ_KEY), else the offset id",
    "offsetMsgId": "id made of the broker's address and the place in its log",
    "keys": "what queries find it by; null if none",
    "tags": "tag; null if none",
    "body": "what was sent; inflated if it was compressed. `string` in a schema of your own is allowed",
    "properties": "all properties; with `propertiesAs` `string`, or in a schema of your own, as they are stored",
    "flag": "the producer's own number",
    "sysFlag": "compressed, transaction, IPv6 and other bits",
    "bornTimestamp": "when the producer made it",
    "bornHost": "address of the producer",
    "storeTimestamp": "when the broker stored it",
    "storeHost": "address of the broker",
    "reconsumeTimes": "how often it was consumed in vain",
    "preparedTransactionOffset": "where its half message is, for one of a transaction",
    "commitLogOffset": "place in the broker's log",
    "storeSize": "bytes of the record in the log",
    "bodyCRC": "checksum of the body as stored",
}
