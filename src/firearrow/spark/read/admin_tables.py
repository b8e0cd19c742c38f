"""Tables of the data source `rocketmq_admin`: the state of a cluster.

    spark.read.format("rocketmq_admin").option("nameServer", "127.0.0.1:9876").option("table", "lag").load()

A table is a snapshot taken_at by the driver when the query is planned. Executors need not reach the name server, and errors are
reported before anything runs. Options: `nameServer`, `table`, `topic` and `group` (comma-separated names), `system` (include the
broker's own topics and groups), and the client options for credentials and TLS.

This module does not import PySpark: the job `lag` uses it without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from firearrow.admin.errors import AdminError, NotFoundError
from firearrow.admin.sync import Admin
from firearrow.client.errors import FirearrowError
from firearrow.clock import wall_ms
from firearrow.spark.errors import SparkOptionError, suggest
from firearrow.spark.options import SECURITY_OPTIONS, parse_flag, write_options

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TableQuery:
    """A query of a table: the connection and the parsed options."""

    admin: Admin
    topics: frozenset[str]
    groups: frozenset[str]
    system: bool

    def topic_names(self) -> list[str]:
        return [one.topic for one in self.admin.list_topics() if self.has_topic(one.topic, one.kind)]

    def has_topic(self, topic: str, kind: str) -> bool:
        return topic in self.topics if self.topics else self.system or kind == "normal"

    def group_names(self) -> list[str]:
        names = self.admin.group_names(system=self.system or bool(self.groups))
        missing = self.groups - set(names)
        if missing:
            raise SparkOptionError(f"the group {min(missing)!r} does not exist")
        return [name for name in names if not self.groups or name in self.groups]


def _topics(query: TableQuery) -> Iterator[Row]:
    for one in query.admin.list_topics():
        if query.has_topic(one.topic, one.kind):
            yield (
                one.topic, one.kind, one.read_queues, one.write_queues, one.perm, one.order, one.message_type, list(one.brokers),
            )  # fmt: skip


def _queues(query: TableQuery) -> Iterator[Row]:
    for topic in query.topic_names():
        for one in _status(query, topic):
            last = _time(one.last_stored_ms)
            yield topic, one.broker, one.queue_id, one.min_offset, one.max_offset, one.messages, last


def _groups(query: TableQuery) -> Iterator[Row]:
    wanted = set(query.group_names())
    for one in query.admin.list_groups(system=query.system or bool(query.groups)):
        if one.group in wanted:
            yield (
                one.group, one.members, one.consume_type, one.message_model, one.lag, list(one.topics), list(one.brokers),
            )  # fmt: skip


def _lag(query: TableQuery) -> Iterator[Row]:
    taken_at = _time(wall_ms())
    min_offsets: dict[str, dict[tuple[str, int], int]] = {}
    for group in query.group_names():
        for one in _progress(query, group):
            if query.topics and one.topic not in query.topics:
                continue
            if one.topic not in min_offsets:
                min_offsets[one.topic] = {(queue.broker, queue.queue_id): queue.min_offset for queue in _status(query, one.topic)}
            yield (
                taken_at, group, one.topic, one.broker, one.queue_id, min_offsets[one.topic].get((one.broker, one.queue_id)),
                one.broker_offset, one.consumer_offset, one.lag, one.in_flight, _time(one.last_consumed_ms),
            )  # fmt: skip


def _clients(query: TableQuery) -> Iterator[Row]:
    for group in query.group_names():
        try:
            found = query.admin.consumer_connection(group)
        except NotFoundError:
            continue
        subscriptions = {topic: one.sub_string for topic, one in found.subscription_table.items()}
        for member in found.connection_set:
            yield (
                "consumer", group, member.client_id, member.client_addr, member.language, member.version, None, None,
                found.consume_type, found.message_model, subscriptions,
            )  # fmt: skip
    for producer in query.admin.list_producers():
        if not query.groups or producer.group in query.groups:
            yield (
                "producer", producer.group, producer.client_id, producer.address, producer.language, producer.version,
                producer.broker, _time(producer.last_seen_ms), None, None, None,
            )  # fmt: skip


def _progress(query: TableQuery, group: str) -> Sequence[Any]:
    try:
        return query.admin.group_progress(group)
    except AdminError:
        return ()


def _status(query: TableQuery, topic: str) -> Sequence[Any]:
    try:
        return query.admin.topic_status(topic)
    except NotFoundError:  # a broker has the topic, but the name server does not
        return ()


def _time(ms: int | None) -> datetime | None:
    return None if not ms or ms < 0 else datetime.fromtimestamp(ms / 1000, UTC)


TABLES: Final[dict[str, tuple[str, Callable[[TableQuery], Iterator[Row]]]]] = {
    "topics": (
        "topic string, kind string, readQueues int, writeQueues int, perm string, ordered boolean, messageType string, "
        "brokers array<string>",
        _topics,
    ),
    "queues": (
        "topic string, brokerName string, queueId int, minOffset bigint, maxOffset bigint, messages bigint, "
        "lastStoredTimestamp timestamp",
        _queues,
    ),
    "groups": (
        "`group` string, members int, consumeType string, messageModel string, lag bigint, topics array<string>, "
        "brokers array<string>",
        _groups,
    ),
    "lag": (
        "takenTimestamp timestamp, `group` string, topic string, brokerName string, queueId int, minOffset bigint, "
        "brokerOffset bigint, consumerOffset bigint, lag bigint, inFlight bigint, lastConsumedTimestamp timestamp",
        _lag,
    ),
    "clients": (
        "side string, `group` string, clientId string, address string, language string, version int, brokerName string, "
        "lastSeenTimestamp timestamp, consumeType string, messageModel string, subscriptions map<string,string>",
        _clients,
    ),
}
"""Schema and row generator of each table."""

_CLIENT_OPTIONS: Final = ("nameServer", "namesrvAddr", *SECURITY_OPTIONS)
_OPTIONS: Final = {name.lower(): name for name in ("table", "topic", "group", "system", *_CLIENT_OPTIONS)}


def table_columns(name: str) -> dict[str, str]:
    """Return the types of the columns of a table by name."""
    columns = (column.split() for column in TABLES[name][0].split(", "))
    return {column.strip("`"): kind for column, kind in columns}


def table_name(options: Mapping[str, str]) -> str:
    """Return the requested table. SparkOptionError for an unknown option or table."""
    return _checked(options)["table"]


def _checked(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with their names as documented."""
    found: dict[str, str] = {}
    for name, text in options.items():
        if name.lower() not in _OPTIONS:
            expected = f"expected some of {', '.join(sorted(_OPTIONS.values()))}"
            raise SparkOptionError(f"unknown option {name!r}; {suggest(name, _OPTIONS.values(), expected)}")
        found[_OPTIONS[name.lower()]] = text.strip()
    tables = f"one of {', '.join(TABLES)}"
    if "table" not in found:
        raise SparkOptionError(f"option table is missing: {tables}")
    if found["table"] not in TABLES:
        raise SparkOptionError(f"option table is {found['table']!r}; {suggest(found['table'], TABLES, f'expected {tables}')}")
    return found


def table_rows(options: Mapping[str, str]) -> list[Row]:
    """Return the rows of a table at present."""
    given = _checked(options)
    client = write_options({name: given[name] for name in _CLIENT_OPTIONS if name in given}).client()
    try:
        system = parse_flag(given.get("system") or "false")
    except ValueError as error:
        raise SparkOptionError(f"option system is {given['system']!r}, expected {error}") from None
    try:
        with Admin(client.name_servers, **client.security_keywords()) as admin:
            query = TableQuery(admin, names_of(given.get("topic")), names_of(given.get("group")), system)
            return list(TABLES[given["table"]][1](query))
    except FirearrowError as error:
        raise SparkOptionError(f"name server {';'.join(client.name_servers)}: {error}") from None


def names_of(text: str | None) -> frozenset[str]:
    """Parse comma-separated names."""
    return frozenset(part.strip() for part in (text or "").split(",") if part.strip())
