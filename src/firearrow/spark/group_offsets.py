"""A consumer group for code that consumes without being a member of it."""

from __future__ import annotations

from firearrow.admin.errors import AdminError
from firearrow.admin.sync import Admin
from firearrow.client.errors import FirearrowError
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.options import Options
from firearrow.wire.names import retry_topic


def make_group(options: Options, group: str) -> None:
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
