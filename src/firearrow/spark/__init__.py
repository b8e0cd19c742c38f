"""Topics as Spark tables: `spark.read.format("rocketmq")`, batch and streaming, from live brokers and store files.

    pip install 'firearrow[spark]'

Spark finds an installed package by itself. `register(spark)` is for sessions that receive the code in another way (`--py-files`,
Spark Connect). `session()` creates a session with the settings recommended for Python data sources.

Subpackages: `decode` (stored records to Arrow columns), `read` and `write` (the two sides of the data source), `pipelines`
(ready-made jobs), `reports` (HTML pages of the jobs).

May import: config, wire, store, client, admin. Only modules that Spark loads import PySpark at module level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firearrow.spark.errors import DataLossError, SparkOptionError, StoreFileError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from firearrow.spark.progress_commit import ProgressListener

__all__ = ["DataLossError", "SparkOptionError", "StoreFileError", "commit_progress", "register", "session"]


def register(spark: SparkSession) -> None:
    """Register the formats `rocketmq` and `rocketmq_admin` with a session."""
    from firearrow.spark.read.admin_datasource import RocketMQAdminDataSource
    from firearrow.spark.read.datasource import RocketMQDataSource

    spark.dataSource.register(RocketMQDataSource)
    spark.dataSource.register(RocketMQAdminDataSource)


def session(app_name: str = "firearrow", **settings: Any) -> SparkSession:
    """Return a Spark session. `settings` are Spark's own, with `_` for `.`: `session(spark_master="local[2]")`."""
    from firearrow.spark.session import make_session

    spark = make_session(app_name, settings)
    register(spark)
    return spark


def commit_progress(
    spark: SparkSession, name_server: str, consumer_group: str, *, query: str | None = None, **options: str
) -> ProgressListener:
    """Commit the progress of the streams of a session to the brokers, as offsets of a consumer group that tools can show.

    `query` limits this to the query of that name. `options`: accessKey, secretKey, credentialsFile, tls. Close the result to
    stop committing.
    """
    from firearrow.spark.progress_commit import commit_progress

    return commit_progress(spark, name_server, consumer_group, query=query, **options)
