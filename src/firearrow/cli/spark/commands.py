"""`firearrow spark JOB`: the options of the jobs and their translation into options of the data source.

Exit codes: 0 success, also after Ctrl-C between two increments; 1 failure; 2 invalid usage; 3 `audit` found differences.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Final

import click

from firearrow.cli.arguments import COUNT, DURATION, GROUP, PAIR, RATE, TIME, TOPIC
from firearrow.cli.command import (
    FAILURE,
    Decorator,
    Function,
    Group,
    exactly_one,
    fail,
    log_level_option,
    namesrv_option,
    options,
    output_option,
)
from firearrow.cli.security import SECURITY_OPTIONS, SecurityArguments

SPARK_JOBS: Final = ("dedupe", "audit", "trace", "sql")
spark = Group(
    "spark",
    help="Jobs over topics, executed by Spark or, for small amounts, without it.",
    epilog="A job that was interrupted continues where it stopped when it is run again with the same options.",
)


def topics_option(help_: str) -> Decorator:
    return click.option("--topic", type=TOPIC, multiple=True, help=f"{help_} Repeatable.")


time_range = options(
    click.option("--from", "begin", type=TIME, help="Only messages stored since this time, or an age: 2h."),
    click.option("--until", "end", type=TIME, help="Only messages stored before this time."),
)
source_options_ = options(
    topics_option("A topic."),
    click.option("--pattern", metavar="REGEX", help="All topics whose whole name matches."),
    click.option("--store", metavar="DIR", help="A store directory, read without brokers."),
    click.option("--store-topic", metavar="TOPIC", multiple=True, help="With --store: only this topic. Repeatable."),
    click.option("--broker-name", metavar="NAME", help="With --store: the broker whose store it is."),
    time_range,
)
sending = options(
    click.option("--checkpoint", metavar="DIR", required=True, help="Directory of the job's progress, from which it continues."),
    click.option("--order", type=click.Choice(("key", "queue", "none")), default="key", show_default=True, help="Kept order."),
    click.option("--rate", metavar="N", type=RATE, help="At most N messages per second."),
)
follow = click.option("--follow", type=DURATION, help="Look for new messages at this interval until Ctrl-C.")
html = click.option("--html", metavar="FILE", help="Write a page with charts.")
trace_topic = click.option("--trace-topic", type=TOPIC, default="RMQ_SYS_TRACE_TOPIC", show_default=True, help="Topic of traces.")
engine = click.option(
    "--engine", type=click.Choice(("auto", "spark", "local")), default="auto", show_default=True,
    help="auto: without Spark below 2 GiB, unless --master is given.",
)  # fmt: skip
common = options(
    namesrv_option,
    output_option,
    click.option("--option", "given", metavar="NAME=VALUE", multiple=True, type=PAIR, help="Data source option. Repeatable."),
    *SECURITY_OPTIONS,
    click.option("--master", metavar="URL", help="Spark master: spark://host:7077, yarn, k8s://...  [default: local[*]]"),
    click.option("--conf", metavar="NAME=VALUE", multiple=True, type=PAIR, help="Setting of Spark. Repeatable."),
    click.option("--dry-run", is_flag=True, help="Only print what would be done."),
    log_level_option("warning"),
)


def increment(size: int) -> Decorator:
    return click.option(
        "--max-offsets", metavar="N", type=COUNT, default=size, show_default=True, help="Messages per increment."
    )  # fmt: skip


def job(name: str, example: str, *decorators: Decorator) -> Callable[[Function], click.Command]:
    """Declare a job: its docstring is the help, its body checks the combination of options."""

    def decorate(check: Function) -> click.Command:
        def callback(**parameters: Any) -> int:
            security = SecurityArguments.take(parameters)
            given = SimpleNamespace(job=name, security=security, **parameters)
            check(given)
            return _run(given)

        callback.__doc__ = check.__doc__
        made = options(*decorators, common)(callback)
        return spark.command(name, epilog=f"Example: firearrow spark {example}")(made)

    return decorate


def _run(given: SimpleNamespace) -> int:
    for package in ("pyarrow", *(("pyspark",) if needs_spark(given) else ())):
        if importlib.util.find_spec(package) is None:
            fail(f"{package} is not installed: pip install 'firearrow[spark]'")
            return FAILURE
    from firearrow.cli.spark import jobs

    return jobs.run(given)


def needs_spark(given: SimpleNamespace) -> bool:
    """Return whether a job needs Spark for any amount of data."""
    if given.job in SPARK_JOBS:
        return True
    return bool(_get(given, "engine") == "spark" or _get(given, "where") or _get(given, "master"))


@job(
    "archive",
    "archive --topic Orders --out /data/archive",
    source_options_,
    click.option("--out", metavar="DIR", required=True, help="Archive: a new directory, or one to continue."),
    click.option("--columns", metavar="A,B", help="Only these columns.  [default: all]"),
    click.option(
        "--compression",
        type=click.Choice(("zstd", "snappy", "lz4", "gzip", "none")),
        default="zstd",
        show_default=True,
        help="Compression of the Parquet files.",
    ),
    click.option("--lossy", is_flag=True, help="Continue after messages that were deleted unread, instead of failing."),
    increment(2_000_000),
    follow,
    engine,
)
def archive(given: SimpleNamespace) -> None:
    """Write topics or a store directory to Parquet files by topic and day, each message once."""
    exactly_one(topic=given.topic, pattern=given.pattern, store=given.store)


@job(
    "transfer",
    "transfer --topic Orders --to-topic OrdersWide --create-queues 32 --checkpoint /data/wide --rate 20000",
    source_options_,
    click.option("--to-topic", metavar="TOPIC", required=True, help="Destination."),
    click.option("--to-namesrv", metavar="ADDR;ADDR", help="Name servers of the destination.  [default: --namesrv]"),
    click.option("--create-queues", metavar="N", type=COUNT, help="Create a missing topic with N queues per broker."),
    sending,
    increment(200_000),
    follow,
    engine,
)
def transfer(given: SimpleNamespace) -> None:
    """Copy a topic to another one, for example with more queues: each message once, in order by key."""
    exactly_one(topic=given.topic, pattern=given.pattern, store=given.store)


@job(
    "replay",
    "replay --dead-letters billing --to-topic origin --checkpoint /data/jobs/billing",
    click.option("--archive", metavar="DIR", help="An archive."),
    click.option("--dead-letters", metavar="GROUP", type=GROUP, help="The dead letters of this group."),
    click.option("--to-topic", metavar="TOPIC", required=True, help="Destination; for dead letters also `origin`."),
    topics_option("Only this topic of the archive."),
    time_range,
    click.option("--where", metavar="SQL", help="Only messages that satisfy this condition; needs Spark."),
    sending,
    increment(200_000),
    engine,
)
def replay(given: SimpleNamespace) -> None:
    """Send an archive, or the dead letters of a group, to a topic."""
    exactly_one(archive=given.archive, dead_letters=given.dead_letters)


@job(
    "dedupe",
    "dedupe --topic Orders --key msgId --out /data/unique",
    source_options_,
    click.option("--archive", metavar="DIR", help="An archive."),
    click.option("--key", default="msgId", show_default=True, help="msgId, keys, body, origin or property:NAME."),
    click.option("--within", type=DURATION, help="Only messages stored within this time of each other are duplicates."),
    click.option("--out", metavar="DIR", help="Write an archive without duplicates."),
    click.option("--to-topic", metavar="TOPIC", help="Write a topic without duplicates."),
    click.option("--checkpoint", metavar="DIR", help="With --to-topic: directory of the job's progress."),
)
def dedupe(given: SimpleNamespace) -> None:
    """Copy a topic or an archive without its duplicates; without --out and --to-topic, count them."""
    exactly_one(topic=given.topic, pattern=given.pattern, store=given.store, archive=given.archive)
    if given.out and given.to_topic:
        raise click.UsageError("--out and --to-topic exclude each other")
    if given.to_topic and not given.checkpoint:
        raise click.UsageError("--to-topic needs --checkpoint, which stores the job's plan and progress")


@job(
    "audit",
    "audit --left Orders --right OrdersWide",
    click.option("--left", metavar="TOPIC|DIR", required=True, help="A topic, or an archive (a path that contains /)."),
    click.option("--right", metavar="TOPIC|DIR", required=True, help="A topic, or an archive (a path that contains /)."),
    click.option("--right-namesrv", metavar="ADDR;ADDR", help="Name servers of the right side.  [default: --namesrv]"),
    click.option("--key", default="origin", show_default=True, help="origin, place, msgId, keys, body or property:NAME."),
    click.option("--right-key", help="Another key on the right side."),
    click.option("--samples", metavar="N", type=COUNT, default=10, show_default=True, help="Samples of each kind of difference."),
    click.option("--out", metavar="DIR", help="Write all differences there, as Parquet."),
    time_range,
)
def audit(given: SimpleNamespace) -> None:
    """Compare two topics, or an archive and a topic: missing and duplicated messages."""


@job(
    "lag",
    "lag --history /data/lag --html lag.html",
    click.option("--group", type=GROUP, multiple=True, help="Only this group. Repeatable."),
    topics_option("Only this topic."),
    click.option("--history", metavar="DIR", help="Keep each snapshot there and include earlier ones."),
    click.option("--since", type=DURATION, default="24h", show_default=True, help="Age of the oldest snapshot included."),
    click.option("--every", type=DURATION, help="Take a snapshot at this interval."),
    click.option("--count", metavar="N", type=COUNT, help="Number of snapshots.  [default: 1; with --every: until Ctrl-C]"),
    html,
)
def lag(given: SimpleNamespace) -> None:
    """Report the lag of groups, now and over time."""


@job(
    "trace",
    "trace --from 1h --html trace.html",
    time_range,
    trace_topic,
    click.option("--no-store", "stored", flag_value=False, default=True, help="Do not read store times from the topics."),
    html,
)
def trace(given: SimpleNamespace) -> None:
    """Report the latency of messages by the trace topic."""


@job(
    "sql",
    'sql "SELECT tags, count(*) FROM Orders GROUP BY tags"',
    click.argument("query"),
    topics_option("A topic to have as a table."),
    click.option("--store", metavar="DIR", help="Topics of a store directory, read without brokers."),
    click.option("--archive", metavar="DIR", help="An archive, as the table `archive`."),
    click.option("--columns", metavar="A,B", help="Only these columns, which is much faster."),
    click.option("--limit", metavar="N", type=COUNT, default=1000, show_default=True, help="Rows to print."),
    time_range,
)
def sql(given: SimpleNamespace) -> None:
    """Query topics, store files, archives and cluster metadata.

    Tables: topics by name, admin_topics, admin_queues, admin_groups, admin_lag, admin_clients, archive.
    """


# ---- options of the data source


def _get(given: SimpleNamespace, name: str) -> Any:
    return getattr(given, name, None)


def source_options(given: SimpleNamespace) -> dict[str, str]:
    """Return the options of the data source that a job reads."""
    if _get(given, "store") is None:
        topics = {"subscribe": ",".join(_get(given, "topic") or ()), "subscribePattern": _get(given, "pattern")}
        return _present(topics) | reader_options(given)
    topics = {"subscribe": ",".join(_get(given, "store_topic") or ()), "brokerName": _get(given, "broker_name")}
    return {"path": given.store} | _present(topics) | _time_options(given) | dict(given.given)


def reader_options(given: SimpleNamespace) -> dict[str, str]:
    """Return the options of the data source that reads from brokers, without the topics."""
    return client_options(given) | _time_options(given) | dict(given.given)


def _time_options(given: SimpleNamespace) -> dict[str, str]:
    begin, end = _milliseconds(_get(given, "begin")), _milliseconds(_get(given, "end"))
    return _present({"startingTimestamp": begin, "endingTimestamp": end, "columns": _get(given, "columns")})


def _present(options: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in options.items() if value}


def _milliseconds(time: datetime | None) -> str | None:
    return None if time is None else str(int(time.timestamp() * 1000))


def client_options(given: SimpleNamespace) -> dict[str, str]:
    security: SecurityArguments = given.security
    return {"nameServer": given.namesrv, **security.data_source_options()}
