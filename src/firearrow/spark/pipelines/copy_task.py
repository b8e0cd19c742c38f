"""Task of the copying jobs: sends the messages it reads to another topic, with the same body, keys, tags, properties and flag.

**Order.** `key`: messages with the same sharding key, or else the same keys, go to one queue in their order. `queue`: all those
of a source queue go to one queue. `none`: any queue. One task reads a source queue, from its beginning.

**Deduplication.** The producer id consists of the job and the number of the part, the sequence number of the increment and the
index of the message in the part. Both are the same when an increment is repeated, so Firearrow's brokers store nothing twice. On
Apache's brokers a repeated message has the same `__SPARK_ID`.

**Origin.** `__SPARK_ID` is the original location of a message: `topic/broker/queue/offset`. Copies of copies keep it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from firearrow.spark.cluster import ClusterClient, cluster_client
from firearrow.spark.decode.columns import select_columns
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.options import DataSourceOptions
from firearrow.spark.pipelines.selection import Selection, place_of
from firearrow.spark.pipelines.sources import Part
from firearrow.spark.read.offsets import Queue
from firearrow.spark.write.input_columns import match_columns
from firearrow.spark.write.message_builder import SPARK_ID, Origin
from firearrow.spark.write.sink import Sink
from firearrow.wire.properties import PROPERTY_RETRY_TOPIC

ORDERS: Final = ("key", "queue", "none")
ORIGIN: Final = "origin"  # as a target: the original topic of a dead letter
_READ: Final = ("topic", "brokerName", "queueId", "queueOffset", "storeTimestamp", "keys", "tags", "body", "properties", "flag")


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Arguments of a task. Plain data, sent to executors."""

    parts: tuple[tuple[int, Part], ...]
    reading: DataSourceOptions
    writing: DataSourceOptions
    target: str
    order: str
    writer: str
    increment: int
    selection: Selection | None = None


def copy_parts(task: CopyTask) -> dict[str, Any]:
    client = cluster_client(task.writing.client())
    targets = [] if task.target == ORIGIN else client.write_queues(task.target)
    rows = size = 0
    for number, part in task.parts:
        sink = _sink(client, task, number)
        sink.write(_to_rows(batch, task, targets) for batch in _batches(part, task))
        rows, size = rows + sink.rows, size + sink.bytes
    return {"rows": rows, "bytes": size}


def _batches(part: Part, task: CopyTask) -> Iterator[Any]:
    for read in part.read(task.reading, select_columns(_READ)):
        batch = read if task.selection is None else task.selection.filter(read)
        if batch.num_rows:
            yield batch


def _sink(client: ClusterClient, task: CopyTask, number: int) -> Sink:
    fields = [("body", "binary"), ("keys", "string"), ("tags", "string"), ("properties", "map<string,string>")]
    fields += [("flag", "int"), ("idempotencyKey", "string")]
    if task.order == "queue":
        fields += [("queueId", "int"), ("brokerName", "string")]
    else:
        fields.append(("shardingKey", "string"))
    if task.target == ORIGIN:
        fields.append(("topic", "string"))
    columns = match_columns(fields, None if task.target == ORIGIN else task.target)
    return Sink(client, task.writing, columns, Origin(task.writer, task.increment, number))


def _to_rows(batch: Any, task: CopyTask, targets: list[Queue]) -> Any:
    properties = batch.column("properties")
    columns = {name: batch.column(name) for name in ("body", "keys", "tags", "properties", "flag")}
    columns["idempotencyKey"] = pc.coalesce(_property(properties, SPARK_ID), place_of(batch))
    if task.order == "queue":
        queues = [_target_of(queue, targets) for queue in _queues(batch)]
        columns["queueId"] = pa.array([queue.queue_id for queue in queues], pa.int32())
        columns["brokerName"] = pa.array([queue.broker_name for queue in queues], pa.string())
    elif task.order == "key":
        columns["shardingKey"] = pc.coalesce(_property(properties, "__SHARDINGKEY"), batch.column("keys"))
    else:
        columns["shardingKey"] = pa.nulls(batch.num_rows, pa.string())
    if task.target == ORIGIN:
        columns["topic"] = _origin_topics(batch)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _origin_topics(batch: Any) -> Any:
    properties = batch.column("properties")
    topics = pc.coalesce(_property(properties, "DLQ_ORIGIN_TOPIC"), _property(properties, PROPERTY_RETRY_TOPIC))
    if topics.null_count:
        row = pc.index(topics.is_null(), True).as_py()
        where = place_of(batch.slice(row, 1))[0].as_py()
        raise SparkOptionError(f"the message at {where} has no original topic: name a target topic")
    return topics


def _queues(batch: Any) -> Iterator[str]:
    columns = [batch.column(name).to_pylist() for name in ("topic", "brokerName", "queueId")]
    for topic, broker, queue in zip(*columns, strict=True):
        yield f"{topic}/{broker or ''}/{queue}"


def _target_of(queue: str, targets: list[Queue]) -> Queue:
    return targets[zlib.crc32(queue.encode()) % len(targets)]


def _property(properties: Any, name: str) -> Any:
    return pc.map_lookup(properties, pa.scalar(name), "first")
