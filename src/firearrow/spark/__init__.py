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

    from firearrow.spark.progress_commit import ProgressListener

__all__ = ["DataLossError", "SparkOptionError", "StoreFileError", "commit_progress", "register", "session"]


def register(spark: SparkSession) -> None:
    """Makes the formats `rocketmq` and `rocketmq_admin` known to a session."""
    from firearrow.spark.read.admin_datasource import RocketMQAdminDataSource
    from firearrow.spark.read.datasource import RocketMQDataSource

    spark.dataSource.register(RocketMQDataSource)
    spark.dataSource.register(RocketMQAdminDataSource)


def session(app_name: str = "firearrow", **settings: Any) -> SparkSession:
    """A Spark session; `settings` are Spark's own, with `_` for `.`: `session(spark_master="local[2]")`."""
    from firearrow.spark.session import make_session

    spark = make_session(app_name, settings)
    register(spark)
    return spark


def commit_progress(
    spark: SparkSession, name_server: str, consumer_group: str, *, query: str | None = None, **options: str
) -> ProgressListener:
    """Tells brokers how far the streams of a session have come, as offsets of a consumer group, which tools then show.

    `query`: only the query of this name. `options`: accessKey, secretKey, credentialsFile, tls. `close()` of the result ends it.
    """
    from firearrow.spark.progress_commit import commit_progress

    return commit_progress(spark, name_server, consumer_group, query=query, **options)
