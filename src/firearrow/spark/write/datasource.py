"""Writers of the data source, called by Spark in the driver and in tasks."""

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
from firearrow.spark.write.input_columns import InputColumns, match_columns
from firearrow.spark.write.message_builder import Origin, new_writer_id
from firearrow.spark.write.sink import RUN, Sink

log = logging.getLogger("firearrow.spark")

# Undocumented local properties that Spark sets for tasks of a streaming query. Without them, rows are written at least once.
_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"


@dataclass
class TaskResult(WriterCommitMessage):
    """Counts of what a task has stored."""

    partition: int
    rows: int
    bytes: int


def check_target(options: DataSourceOptions, schema: StructType) -> InputColumns:
    """Check everything that can be checked before a task runs, and create the topic if needed."""
    if options["idempotent"] == "true" and options["topic"] is None:
        raise SparkOptionError("option idempotent is true: give the option topic, so that its brokers can be checked")
    columns = match_columns([(field.name, field.dataType.simpleString()) for field in schema.fields], options["topic"])
    servers = cluster_client(options.client())
    if columns.topic is not None:
        queues = servers.write_queues(columns.topic, options["createTopic"], options["queues"])
        unsafe = servers.brokers_without_dedup(queues, RUN) if options["idempotent"] == "true" else []
        if unsafe:
            raise SparkOptionError(
                f"option idempotent is true, but the broker {unsafe[0]} does not deduplicate: use auto, and recognise "
                "repeated messages by their property __SPARK_ID"
            )
    else:
        servers.topics()  # fails if no name server answers
    return columns


class RocketMQWriter(DataSourceArrowWriter):
    """Writer of a batch query."""

    def __init__(self, options: DataSourceOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise SparkOptionError('a topic cannot be overwritten: use mode("append")')
        self._options = options
        self._columns = check_target(options, schema)
        self._writer_id = options["writeId"] or new_writer_id()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _write(self._options, self._columns, Origin(self._writer_id, 0, _partition()), iterator)


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """Writer of a streaming query."""

    def __init__(self, options: DataSourceOptions, schema: StructType, overwrite: bool) -> None:
        if options["writeId"] is not None:
            raise SparkOptionError("option writeId is for batch jobs: a stream is identified by its checkpoint")
        self._options = options
        self._columns = check_target(options, schema)
        self._fallback_id = new_writer_id()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context is not None else None
        batch = context.getLocalProperty(_BATCH_ID) if context is not None else None
        if query is None or batch is None or not batch.isdecimal():
            log.warning("this version of Spark does not pass the micro-batch id to tasks: rows are written at least once")
            origin = Origin(f"{self._fallback_id}-{new_writer_id()}", 0, _partition())
        else:
            origin = Origin(query, int(batch), _partition())
        return _write(self._options, self._columns, origin, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        """Do nothing: the rows of a reported task are stored."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: stored rows stay, and the broker recognises them when the batch is replayed."""


def _write(options: DataSourceOptions, columns: InputColumns, origin: Origin, iterator: Iterator[Any]) -> WriterCommitMessage:
    sink = Sink(cluster_client(options.client()), options, columns, origin)
    sink.write(iterator)
    return TaskResult(origin.partition, sink.rows, sink.bytes)


def _partition() -> int:
    context = TaskContext.get()
    return int(context.partitionId()) if context is not None else 0
