"""Topics as Spark tables: `spark.read.format("rocketmq")`, batch and streaming, live brokers and store files.

    pip install 'firearrow[spark]'

An installed package is found by Spark itself. `register(spark)` is for sessions that get the code in another way (`--py-files`,
Spark Connect); `session()` makes a session with the settings that Python data sources want.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firearrow.spark.errors import DataLossError, SparkOptionError, StoreFileError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DataLossError", "SparkOptionError", "StoreFileError", "register", "session"]


def register(spark: SparkSession) -> None:
    """Makes the format `rocketmq` known to a session."""
    from firearrow.spark.source import RocketMQDataSource

    spark.dataSource.register(RocketMQDataSource)


def session(app_name: str = "firearrow", **settings: Any) -> SparkSession:
    """A Spark session; `settings` are Spark's own, with `_` for `.`: `session(spark_master="local[2]")`."""
    from firearrow.spark.sessions import make_session

    spark = make_session(app_name, settings)
    register(spark)
    return spark
