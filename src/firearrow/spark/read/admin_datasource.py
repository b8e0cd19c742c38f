"""The data source `rocketmq_admin`, on Spark's Python data source API. Its tables are in admin_tables.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from firearrow.spark.errors import SparkOptionError
from firearrow.spark.read.admin_tables import TABLES, Row, table_columns, table_name, table_rows


class RocketMQAdminDataSource(DataSource):
    """Entry point of Spark."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq_admin"

    def schema(self) -> str:
        return TABLES[table_name(self.options)][0]

    def reader(self, schema: StructType) -> DataSourceReader:
        if schema.names != list(table_columns(table_name(self.options))):
            raise SparkOptionError("tables of rocketmq_admin have a fixed schema: use select instead")
        return AdminReader(dict(self.options))


class AdminReader(DataSourceReader):
    """Reader of a table. Its only partition has the rows, which the driver collects."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(table_rows(self._options))]

    def read(self, partition: InputPartition) -> Iterator[Row]:
        return iter(partition.value)
