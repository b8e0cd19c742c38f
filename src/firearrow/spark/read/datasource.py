"""The data source `rocketmq`, as Spark's Python data source API wants it (pyspark 4.2 or later).

Everything that can be wrong is found while the query is planned, in the driver. Executors get plain data: ranges of offsets, or
of bytes of store files, and the options.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from firearrow.spark.cluster import cluster_client
from firearrow.spark.decode.columns import Columns, columns_of_schema, select_columns
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.options import DataSourceOptions, read_options, write_options
from firearrow.spark.read.live import read_ranges
from firearrow.spark.read.planning import Range, ending, ranges, starting, tasks, wanted_queues
from firearrow.spark.read.pushdown import PushedFilters, pushed
from firearrow.spark.read.store_scan import Split, plan_splits, read_splits

OLDEST = (4, 2)  # the first with limits of micro-batches for Python sources


class RocketMQDataSource(DataSource):
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


class RangePartition(InputPartition):
    """A task of a live read."""

    def __init__(self, wanted: Sequence[Range]) -> None:
        self.ranges = list(wanted)


class SplitPartition(InputPartition):
    """A task of a store scan."""

    def __init__(self, splits: Sequence[Split]) -> None:
        self.splits = list(splits)


class RocketMQReader(DataSourceReader):
    def __init__(self, options: DataSourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns, self._names = columns_of(schema)
        self._pushed = PushedFilters()

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        servers = cluster_client(options.client())
        queues = wanted_queues(servers, options)
        start = starting(servers, queues, options, "earliest")
        end = ending(servers, queues, options)
        left = self._pushed.queues(queues)
        bounds = self._pushed.bounded(servers, {queue: start[queue] for queue in left}, {queue: end[queue] for queue in left})
        return planned(ranges(*bounds), options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangePartition)
        freeze_once(self._options)
        return read_ranges(partition.ranges, self._options, self._columns, self._names)


class StoreScanReader(DataSourceReader):
    def __init__(self, options: DataSourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns, self._names = columns_of(schema)

    def partitions(self) -> Sequence[InputPartition]:
        return [SplitPartition([split]) for split in plan_splits(self._options)] or [SplitPartition([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, SplitPartition)
        freeze_once(self._options)
        return read_splits(partition.splits, self._options, self._columns, self._names)


# Spark refuses a reader that has `pushFilters` unless it was told to push: so those that have it are classes of their own.


class PushedReader(RocketMQReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        self._pushed = pushed(filters)
        self._options = self._pushed.options(self._options)
        return filters


class PushedStoreReader(StoreScanReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        self._options = pushed(filters).options(self._options)
        return filters


def columns_of(schema: StructType) -> tuple[Columns, list[str]]:
    """What a schema asks for, and what it calls it."""
    columns = columns_of_schema([(field.name, field.dataType.simpleString()) for field in schema.fields])
    return columns, list(schema.names)


def planned(wanted: Sequence[Range], options: DataSourceOptions) -> list[InputPartition]:
    made = tasks(
        wanted,
        least=options["minRecordsPerPartition"],
        most=options["maxRecordsPerPartition"],
        min_tasks=options["minPartitions"],
    )
    return [RangePartition(task) for task in made] or [RangePartition([])]


_frozen = False


def freeze_once(options: DataSourceOptions) -> None:
    """Spark collects garbage after every task; what a worker has loaded need not be looked at each time."""
    global _frozen
    if options["workerGcFreeze"] and not _frozen:
        _frozen = True
        gc.collect()
        gc.freeze()


def _check_version() -> None:
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < OLDEST:
        raise SparkOptionError(f"pyspark {pyspark.__version__} is too old for this source: install pyspark 4.2 or later")
