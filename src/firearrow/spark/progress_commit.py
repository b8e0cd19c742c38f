"""Tells brokers how far streams have come, as offsets of a consumer group: `firearrow group progress`, `mqadmin consumerProgress`
and every console then show a Spark job like any consumer.

    firearrow.spark.commit_progress(spark, "127.0.0.1:9876", "orders-job")

Spark's `commit` comes a batch late, and never for the last batch; a listener hears of every batch when it is done. The checkpoint
stays what decides where a stream goes on. No member is registered, so no real consumer of the group loses queues to Spark.
Brokers that cannot be reached cost a warning, never the query.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener

from firearrow.admin.errors import AdminError
from firearrow.admin.sync import Admin
from firearrow.client.errors import FirearrowError
from firearrow.spark.cluster import cluster_client
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.options import DataSourceOptions, write_options
from firearrow.spark.read.offsets import Offsets, from_dict
from firearrow.wire.names import check_group, retry_topic

log = logging.getLogger("firearrow.spark")


def commit_progress(
    spark: Any, name_server: str, consumer_group: str, *, query: str | None = None, **options: str
) -> ProgressListener:
    """Begins to commit; `query` is the name of the only query that is meant. `close()` of the result ends it.

    `options` are keys as for the data source: accessKey, secretKey, credentialsFile, tls.
    """
    try:
        check_group(consumer_group)
    except ValueError as error:
        raise SparkOptionError(f"consumer_group is {consumer_group!r}: {error}") from None
    asked = write_options({"nameServer": name_server, **options})
    listener = ProgressListener(spark, asked, consumer_group, query)
    spark.streams.addListener(listener)
    return listener


class ProgressListener(StreamingQueryListener):
    """Use `commit_progress`. `committed` is what was told last."""

    def __init__(self, spark: Any, options: DataSourceOptions, group: str, query: str | None = None) -> None:
        super().__init__()
        self._spark = spark
        self._query = query
        self._options = options
        self._group = group
        self.committed: Offsets = {}
        make_group(options, group)

    def close(self) -> None:
        self._spark.streams.removeListener(self)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """Nothing has been read."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        progress = event.progress
        if self._query is not None and progress.name != self._query:
            return
        for source in progress.sources:
            offsets = offsets_of(source.endOffset)
            news = {queue: offset for queue, offset in offsets.items() if self.committed.get(queue) != offset}
            try:
                cluster_client(self._options.client()).commit(self._group, news)
                self.committed |= news
            except Exception as error:  # whatever it is: the query goes on
                log.warning("the progress of a stream could not be committed: %s", error)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """Nothing new was read."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """The last batch was told of before."""


def offsets_of(text: str | None) -> Offsets:
    """The offsets of a source, if it is one of ours; others have offsets that look different."""
    try:
        found = json.loads(text or "{}")
        return from_dict(found) if isinstance(found, dict) else {}
    except ValueError:  # SparkOptionError is one
        return {}


def make_group(options: DataSourceOptions, group: str) -> None:
    """The group, and the retry topic by which tools find the brokers of a group, if they are not there."""
    client = options.client()
    try:
        with Admin(client.name_servers, credentials=client.credentials, tls=client.tls) as admin:
            if group not in admin.group_names(system=True):
                admin.create_group(group)
            if retry_topic(group) not in admin.topic_names():
                admin.create_topic(retry_topic(group), queues=1)
    except (AdminError, FirearrowError) as error:
        raise SparkOptionError(f"the group {group!r} cannot be made: {error}") from None
