"""The data source `rocketmq`, on Spark's Python data source API (PySpark 4.2 or later).

All errors in options are found while the query is planned, in the driver. Executors receive plain data: the options, and ranges
of offsets or of bytes of store files.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from firearrow.spark.cluster import cluster_client
from firearrow.spark.decode.columns import Columns, columns_of_schema, select_columns
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.options import DataSourceOptions, read_options, write_options
from firearrow.spark.read.live import read_ranges
from firearrow.spark.read.planning import Range, ending_offsets, plan_tasks, ranges_between, resolve_queues, starting_offsets
from firearrow.spark.read.pushdown import PushedFilters, parse_filters
from firearrow.spark.read.store_scan import plan_splits, read_splits

MIN_PYSPARK = (4, 2)  # the first version with micro-batch limits for Python sources


class RocketMQDataSource(DataSource):
    """Entry point of Spark."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        _check_version()
        options = read_options(self.options)
        return select_columns(options["columns"], options["propertiesAs"]).ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        _check_version()
        options = read_options(self.options, stream=False)
        if options["path"] is not None:
            return (PushedStoreReader if options["pushFilters"] else StoreScanReader)(options, schema)
        return (PushedReader if options["pushFilters"] else RocketMQReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        from firearrow.spark.read.stream import RocketMQStreamReader

        _check_version()
        return RocketMQStreamReader(read_options(self.options, stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from firearrow.spark.write.datasource import RocketMQWriter

        _check_version()
        return RocketMQWriter(write_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 (Spark's name)
        from firearrow.spark.write.datasource import RocketMQStreamWriter

        _check_version()
        return RocketMQStreamWriter(write_options(self.options), schema, overwrite)


class LiveReader:
    """Read from brokers, batch or streaming. The value of a partition is a list of ranges."""

    def __init__(self, options: DataSourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns = columns_of(schema)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        freeze_once(self._options)
        return read_ranges(partition.value, self._options, self._columns)


class RocketMQReader(LiveReader, DataSourceReader):
    """Batch read from brokers."""

    _pushed = PushedFilters()

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        client = cluster_client(options.client())
        queues = resolve_queues(client, options)
        start = starting_offsets(client, queues, options, "earliest")
        end = ending_offsets(client, queues, options)
        kept = self._pushed.queues(queues)
        bounds = self._pushed.narrow(client, {queue: start[queue] for queue in kept}, {queue: end[queue] for queue in kept})
        return plan_partitions(ranges_between(*bounds), options)


class StoreScanReader(DataSourceReader):
    """Batch read of store files. The value of a partition is a list of splits."""

    def __init__(self, options: DataSourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns = columns_of(schema)

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition([split]) for split in plan_splits(self._options)] or [InputPartition([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        freeze_once(self._options)
        return read_splits(partition.value, self._options, self._columns)


# Spark rejects a reader with a method `pushFilters` unless pushdown is enabled. Hence separate classes.


class PushedReader(RocketMQReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        self._pushed = parse_filters(filters)
        self._options = self._pushed.options(self._options)
        return filters


class PushedStoreReader(StoreScanReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        self._options = parse_filters(filters).options(self._options)
        return filters


def columns_of(schema: StructType) -> Columns:
    return columns_of_schema([(field.name, field.dataType.simpleString()) for field in schema.fields])


def plan_partitions(wanted: Sequence[Range], options: DataSourceOptions) -> list[InputPartition]:
    planned = plan_tasks(
        wanted,
        least=options["minRecordsPerPartition"],
        most=options["maxRecordsPerPartition"],
        min_tasks=options["minPartitions"],
    )
    return [InputPartition(task) for task in planned] or [InputPartition([])]


def freeze_once(options: DataSourceOptions) -> None:
    """Exclude loaded modules from garbage collection, which Spark runs after every task."""
    if options["workerGcFreeze"]:
        _freeze()


@cache
def _freeze() -> None:
    gc.collect()
    gc.freeze()


def _check_version() -> None:
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < MIN_PYSPARK:
        raise SparkOptionError(f"pyspark {pyspark.__version__} is too old for this source: install pyspark 4.2 or later")
