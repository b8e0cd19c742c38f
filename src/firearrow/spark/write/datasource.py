"""The writing side of the data source: what Spark calls, in the driver and in tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from firearrow.spark.cluster import cluster_client
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.options import DataSourceOptions
from firearrow.spark.write.input_columns import InputColumns, shape_of
from firearrow.spark.write.message_builder import Origin, new_writer
from firearrow.spark.write.sink import RUN, Sink

log = logging.getLogger("firearrow.spark")

# Spark sets these for the tasks of a streaming query. They are not documented: without them a stream is written at least once.
_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"


@dataclass
class Written(WriterCommitMessage):
    """What a task has stored."""

    partition: int
    rows: int
    bytes: int


def prepared(options: DataSourceOptions, schema: StructType) -> InputColumns:
    """Checks everything that can be checked before a task runs."""
    if options["idempotent"] == "true" and options["topic"] is None:
        raise SparkOptionError("option idempotent is true: give the option topic, so that its brokers can be asked")
    shape = shape_of([(field.name, field.dataType.simpleString()) for field in schema.fields], options["topic"])
    servers = cluster_client(options.client())
    if shape.topic is not None:
        queues = servers.write_queues(shape.topic, options["createTopic"], options["queues"])
        again = servers.repeats_stored(queues, RUN) if options["idempotent"] == "true" else []
        if again:
            raise SparkOptionError(
                f"option idempotent is true, but the broker {again[0]} stores what is sent again twice: use auto, "
                "and tell repeated messages by their property __SPARK_ID"
            )
    else:
        servers.topics()  # is there anybody?
    return shape


class RocketMQWriter(DataSourceArrowWriter):
    def __init__(self, options: DataSourceOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise SparkOptionError('a topic cannot be overwritten: use mode("append")')
        self._options = options
        self._shape = prepared(options, schema)
        self._writer = options["writeId"] or new_writer()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _written(self._options, self._shape, Origin(self._writer, 0, _partition()), iterator)


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: DataSourceOptions, schema: StructType, overwrite: bool) -> None:
        if options["writeId"] is not None:
            raise SparkOptionError("option writeId is for batch jobs: a stream is known by its checkpoint")
        self._options = options
        self._shape = prepared(options, schema)
        self._fallback = new_writer()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context is not None else None
        batch = context.getLocalProperty(_BATCH_ID) if context is not None else None
        if query is None or batch is None or not batch.isdecimal():
            log.warning("this Spark does not tell tasks the number of their micro-batch: rows are written at least once")
            origin = Origin(f"{self._fallback}-{new_writer()}", 0, _partition())
        else:
            origin = Origin(query, int(batch), _partition())
        return _written(self._options, self._shape, origin, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        """Nothing: what a task has reported is stored."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: what was stored stays, and is not stored again when the batch is replayed."""


def _written(options: DataSourceOptions, shape: InputColumns, origin: Origin, iterator: Iterator[Any]) -> WriterCommitMessage:
    sink = Sink(cluster_client(options.client()), options, shape, origin)
    sink.write(iterator)
    return Written(origin.partition, sink.rows, sink.bytes)


def _partition() -> int:
    context = TaskContext.get()
    return int(context.partitionId()) if context is not None else 0
