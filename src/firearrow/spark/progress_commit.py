"""Commits of stream progress to the brokers, as offsets of a consumer group.

    firearrow.spark.commit_progress(spark, "127.0.0.1:9876", "orders-job")

`firearrow group progress`, `mqadmin consumerProgress` and every console then show a Spark job like any consumer. A listener is
used because Spark calls a source's `commit` one batch late and never for the last batch. The checkpoint still decides where a
stream resumes. No member is registered, so consumers of the group lose no queues to Spark. If brokers are unreachable, a warning
is logged and the query continues.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener

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
    """Commit the progress of the streams of a session to the brokers, as offsets of a consumer group that tools can show.

    `query` limits this to the query of that name. `options`: those for credentials and TLS. Close the result to
    stop committing.
    """
    try:
        check_group(consumer_group)
    except ValueError as error:
        raise SparkOptionError(f"consumer_group is {consumer_group!r}: {error}") from None
    checked = write_options({"nameServer": name_server, **options})
    listener = ProgressListener(spark, checked, consumer_group, query)
    spark.streams.addListener(listener)
    return listener


class ProgressListener(StreamingQueryListener):
    """Listener that commits offsets; create it with `commit_progress`. `committed` holds the last committed offsets."""

    def __init__(self, spark: Any, options: DataSourceOptions, group: str, query: str | None = None) -> None:
        super().__init__()
        self._spark = spark
        self._query = query
        self._options = options
        self._group = group
        self.committed: Offsets = {}
        ensure_group(options, group)

    def close(self) -> None:
        self._spark.streams.removeListener(self)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """Do nothing: no message has been read."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        progress = event.progress
        if self._query is not None and progress.name != self._query:
            return
        for source in progress.sources:
            offsets = parse_source_offsets(source.endOffset)
            changed = {queue: offset for queue, offset in offsets.items() if self.committed.get(queue) != offset}
            try:
                cluster_client(self._options.client()).commit(self._group, changed)
                self.committed |= changed
            except Exception as error:  # noqa: BLE001 (no error may stop the query)
                log.warning("could not commit the progress of a stream: %s", error)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """Do nothing: no new message was read."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """Do nothing: the last batch was committed by its progress event."""


def parse_source_offsets(text: str | None) -> Offsets:
    """Return the offsets of a `rocketmq` source; nothing for other sources, whose offsets have another form."""
    try:
        found = json.loads(text or "{}")
        return from_dict(found) if isinstance(found, dict) else {}
    except ValueError:  # SparkOptionError is one
        return {}


def ensure_group(options: DataSourceOptions, group: str) -> None:
    """Create the group, and the retry topic by which tools find the brokers of a group, unless they exist."""
    client = options.client()
    try:
        with Admin(client.name_servers, **client.security_keywords()) as admin:
            if group not in admin.group_names(system=True):
                admin.create_group(group)
            if retry_topic(group) not in admin.topic_names():
                admin.create_topic(retry_topic(group), queues=1)
    except FirearrowError as error:
        raise SparkOptionError(f"cannot create the group {group!r}: {error}") from None
