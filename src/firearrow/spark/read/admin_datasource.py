"""The data source `rocketmq_admin`, on Spark's Python data source API. Its tables are in admin_tables.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from firearrow.spark.errors import SparkOptionError
from firearrow.spark.read.admin_tables import TABLES, Row, table_name, table_rows


class RocketMQAdminDataSource(DataSource):
    """Entry point of Spark."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq_admin"

    def schema(self) -> str:
        return TABLES[table_name(self.options)][0]

    def reader(self, schema: StructType) -> DataSourceReader:
        wanted = TABLES[table_name(self.options)][0]
        if [field.name for field in schema.fields] != [part.split()[0].strip("`") for part in wanted.split(", ")]:
            raise SparkOptionError("tables of rocketmq_admin have a fixed schema: use select instead")
        return AdminReader(dict(self.options))


class RowsPartition(InputPartition):
    """The rows of a table, collected by the driver."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows


class AdminReader(DataSourceReader):
    """Reader of a table."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return [RowsPartition(table_rows(self._options))]

    def read(self, partition: InputPartition) -> Iterator[Row]:
        assert isinstance(partition, RowsPartition)
        return iter(partition.rows)
