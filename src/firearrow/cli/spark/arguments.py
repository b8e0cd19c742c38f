"""`firearrow spark JOB ...`: the words of the jobs. Nothing but the standard library is loaded to understand them.

Exit codes: 0 done, or stopped by Ctrl-C between two increments; 1 it failed; 2 the words were not understood; 3 `audit` found
differences.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from firearrow.cli.arguments import LineParser, UsageError, count, pair, rate, seconds
from firearrow.cli.messages.arguments import DEFAULT_NAME_SERVER, UNITS

JOBS: Final = {
    "archive": "topics or a store directory to Parquet files by topic and day, each message once",
    "transfer": "a topic to another one with more queues: each message once, order kept by key, as fast as you allow",
    "replay": "an archive, or the dead letters of a group, back to a topic",
    "dedupe": "a topic or an archive without its duplicates",
    "audit": "compare two topics, or an archive and a topic: what is missing, what is doubled",
    "lag": "how far groups are behind, now and over time; a page with charts",
    "trace": "how long messages took, by the trace topic; a page with charts",
    "sql": "a query over topics, store files, archives and what the cluster knows of itself",
}
_EXAMPLES: Final = {
    "archive": "spark archive --topic Orders --out /data/archive",
    "transfer": "spark transfer --topic Orders --to-topic OrdersWide --create-queues 32 --checkpoint /data/wide --rate 20000",
    "replay": "spark replay --dead-letters billing --to-topic origin --checkpoint /data/jobs/billing",
    "dedupe": "spark dedupe --topic Orders --key msgId --out /data/unique",
    "audit": "spark audit --left Orders --right OrdersWide",
    "lag": "spark lag --history /data/lag --html lag.html",
    "trace": "spark trace --from 1h --html trace.html",
    "sql": 'spark sql "SELECT tags, count(*) FROM Orders GROUP BY tags"',
}


def run(words: Sequence[str]) -> int:
    parser, _ = parsers()
    options, unknown = parser.parse_known_args(list(words))
    if unknown:
        options.parser.error(f"unknown argument {unknown[0]}; {options.parser.nearest(unknown[0])}")
    for package in ("pyarrow", *(("pyspark",) if needs_spark(options) else ())):
        if importlib.util.find_spec(package) is None:
            print(f"{options.parser.prog}: {package} is not installed: pip install 'firearrow[spark]'", file=sys.stderr)
            return 1
    from firearrow.cli.spark import jobs

    try:
        return jobs.run(options)
    except UsageError as error:
        print(f"{options.parser.prog}: {error}", file=sys.stderr)
        return 2


def needs_spark(options: argparse.Namespace) -> bool:
    """Whether a job cannot do without, whatever there is to read."""
    if options.job in ("dedupe", "audit", "trace", "sql"):
        return True
    return bool(options.engine == "spark" or getattr(options, "where", None) or getattr(options, "master", None))


def parsers() -> tuple[LineParser, dict[str, LineParser]]:
    """The parser, and those of the jobs."""
    parser = LineParser(
        prog="firearrow spark",
        description="Jobs over topics, on Spark or, where there is little to do, without it.",
        epilog="A job that was stopped or killed goes on where it was when it is run again with the same words. "
        "`firearrow spark JOB --help` says more.",
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(dest="job", required=True, metavar="JOB", parser_class=LineParser)
    made: dict[str, LineParser] = {}
    for name, about in JOBS.items():
        job = verbs.add_parser(
            name,
            help=about,
            description=f"{about[:1].upper()}{about[1:]}.",
            epilog=f"example: firearrow {_EXAMPLES[name]}",
            allow_abbrev=False,
        )
        job.set_defaults(parser=job, engine="auto")
        _ADD[name](job)
        _common(job)
        made[name] = job
    return parser, made


def _archive(job: LineParser) -> None:
    _source(job)
    job.add_argument("--out", metavar="DIR", required=True, help="the archive: a new directory, or one that is continued")
    job.add_argument("--columns", metavar="A,B", help="only these columns (default: all)")
    job.add_argument(
        "--compression", choices=("zstd", "snappy", "lz4", "gzip", "none"), default="zstd", help="default: %(default)s"
    )
    job.add_argument("--lossy", action="store_true", help="go on where messages were deleted unread, instead of failing")
    _increments(job, 2_000_000, follow=True)


def _transfer(job: LineParser) -> None:
    _source(job)
    job.add_argument("--to-topic", metavar="TOPIC", required=True, help="where to")
    job.add_argument("--to-name-server", metavar="ADDR;ADDR", help="of the other cluster (default: the same)")
    job.add_argument(
        "--create-queues", metavar="N", type=count, help="make the topic, with so many queues a broker, if it is missing"
    )
    _sending(job)
    _increments(job, 200_000, follow=True)


def _replay(job: LineParser) -> None:
    what = job.add_mutually_exclusive_group(required=True)
    what.add_argument("--archive", metavar="DIR", help="what `archive` wrote")
    what.add_argument("--dead-letters", metavar="GROUP", help="what this group could not consume")
    job.add_argument("--to-topic", metavar="TOPIC", required=True, help="where to; for dead letters also: origin")
    job.add_argument("--topic", metavar="TOPIC", action="append", default=[], help="only these topics of the archive; repeatable")
    _times(job)
    job.add_argument("--where", metavar="SQL", help="only messages for which this is true, as in \"tags = 'paid'\"; needs Spark")
    _sending(job)
    _increments(job, 200_000)


def _dedupe(job: LineParser) -> None:
    _source(job, archive=True)
    job.add_argument("--key", default="msgId", help="msgId, keys, body, origin or property:NAME (default: %(default)s)")
    job.add_argument("--within", metavar="TIME", type=_span, help="only what was stored so soon after another is one: 10m")
    target = job.add_mutually_exclusive_group()
    target.add_argument("--out", metavar="DIR", help="write an archive without duplicates")
    target.add_argument("--to-topic", metavar="TOPIC", help="write a topic without duplicates (without both: only count)")
    job.add_argument("--checkpoint", metavar="DIR", help="with --to-topic: where the job writes down what it does")


def _audit(job: LineParser) -> None:
    for side in ("left", "right"):
        job.add_argument(f"--{side}", metavar="TOPIC|DIR", required=True, help="a topic, or an archive (a path with a / in it)")
    job.add_argument("--right-name-server", metavar="ADDR;ADDR", help="of the cluster on the right (default: the same)")
    job.add_argument("--key", default="origin", help="origin, place, msgId, keys, body or property:NAME (default: %(default)s)")
    job.add_argument("--right-key", help="another key on the right")
    job.add_argument("--samples", metavar="N", type=count, default=10, help="of each kind of difference (default: %(default)s)")
    job.add_argument("--out", metavar="DIR", help="write every difference there, as Parquet")
    _times(job)


def _lag(job: LineParser) -> None:
    job.add_argument("--group", metavar="GROUP", action="append", default=[], help="only these groups; repeatable")
    job.add_argument("--topic", metavar="TOPIC", action="append", default=[], help="only these topics; repeatable")
    job.add_argument("--history", metavar="DIR", help="keep every snapshot there, and look back")
    job.add_argument("--since", metavar="TIME", type=_span, default=86_400_000, help="how far to look back (default: 24h)")
    job.add_argument("--every", metavar="S", type=seconds, help="a snapshot every so many seconds")
    job.add_argument("--count", metavar="N", type=count, help="so many snapshots (default: one; with --every: until Ctrl-C)")
    job.add_argument("--html", metavar="FILE", help="write a page with charts")


def _trace(job: LineParser) -> None:
    _times(job)
    job.add_argument("--trace-topic", metavar="TOPIC", default="RMQ_SYS_TRACE_TOPIC", help="default: %(default)s")
    job.add_argument("--no-store", dest="stored", action="store_false", help="do not look into the topics for store times")
    job.add_argument("--html", metavar="FILE", help="write a page with charts")


def _sql(job: LineParser) -> None:
    tables = "topics by name, admin_topics, admin_queues, admin_groups, admin_lag, admin_clients, archive"
    job.add_argument("query", metavar="QUERY", help=f"tables: {tables}")
    job.add_argument("--topic", metavar="TOPIC", action="append", default=[], help="a topic to have as a table; repeatable")
    job.add_argument("--store", metavar="DIR", help="topics of a store directory, without brokers")
    job.add_argument("--archive", metavar="DIR", help="an archive, as the table `archive`")
    job.add_argument("--columns", metavar="A,B", help="only these columns, which is much faster")
    job.add_argument("--limit", metavar="N", type=count, default=1000, help="rows to print (default: %(default)s)")
    _times(job)


_ADD: Final[dict[str, Callable[[LineParser], None]]] = {
    "archive": _archive, "transfer": _transfer, "replay": _replay, "dedupe": _dedupe, "audit": _audit, "lag": _lag,
    "trace": _trace, "sql": _sql,
}  # fmt: skip


def _source(job: LineParser, *, archive: bool = False) -> None:
    what = job.add_mutually_exclusive_group(required=True)
    what.add_argument("--topic", metavar="TOPIC", action="append", default=[], help="a topic, or several; repeatable")
    what.add_argument("--pattern", metavar="REGEX", help="all topics whose whole name matches")
    if archive:
        what.add_argument("--archive", metavar="DIR", help="what `archive` wrote")
    what.add_argument("--store", metavar="DIR", help="a store directory, without brokers")
    job.add_argument("--store-topic", metavar="TOPIC", action="append", default=[], help="with --store: only these; repeatable")
    job.add_argument("--broker-name", metavar="NAME", help="with --store: whose store it is")
    _times(job)


def _times(job: LineParser) -> None:
    job.add_argument(
        "--from", dest="begin", metavar="TIME", type=_moment, help="stored at or after: 2030-01-31T12:00, ms, or an age: 2h"
    )
    job.add_argument("--to", dest="end", metavar="TIME", type=_moment, help="stored before")


def _sending(job: LineParser) -> None:
    job.add_argument(
        "--checkpoint", metavar="DIR", required=True, help="where the job writes down what it does, and goes on from"
    )
    job.add_argument(
        "--order", choices=("key", "queue", "none"), default="key", help="what stays in order (default: %(default)s)"
    )
    job.add_argument("--rate", metavar="N", type=rate, help="at most so many messages a second")


def _increments(job: LineParser, most: int, *, follow: bool = False) -> None:
    job.add_argument("--max-offsets", metavar="N", type=count, default=most, help="messages per increment (default: %(default)s)")
    if follow:
        job.add_argument("--follow", metavar="S", type=seconds, help="then look for more every so many seconds, until Ctrl-C")
    job.add_argument("--engine", choices=("auto", "spark", "local"), default="auto",
                     help="auto: without Spark below 2 GiB, unless --master is given")  # fmt: skip


def _common(job: LineParser) -> None:
    default = os.environ.get("NAMESRV_ADDR") or DEFAULT_NAME_SERVER
    job.add_argument("-n", "--name-server", metavar="ADDR;ADDR", default=default,
                     help=f"name servers (default: $NAMESRV_ADDR, or {DEFAULT_NAME_SERVER})")  # fmt: skip
    job.add_argument("--option", metavar="NAME=VALUE", dest="given", action="append", type=pair, default=[],
                     help="any other option of the data source; repeatable")  # fmt: skip
    job.add_argument("--access-key", metavar="KEY", help="for access control; the secret key is in $FIREARROW_SECRET_KEY")
    job.add_argument("--credentials-file", metavar="FILE", help="the same from a JSON file, which executors must have, too")
    job.add_argument("--tls", action="store_true", help="encrypted connections")
    job.add_argument("--master", metavar="URL", help="Spark's: local[*], spark://host:7077, yarn, k8s://... (default: local[*])")
    job.add_argument(
        "--conf", metavar="NAME=VALUE", action="append", type=pair, default=[], help="a setting of Spark; repeatable"
    )
    job.add_argument("--dry-run", action="store_true", help="only say what would be done")
    job.add_argument("--json", action="store_true", help="JSON, one object a line, for scripts")


def _moment(text: str) -> int:
    """Milliseconds since 1970."""
    from datetime import datetime

    if text.isascii() and text.isdigit():
        return int(text)
    if text[:-1].isascii() and text[:-1].isdigit() and text[-1:] in UNITS:
        return int((datetime.now().timestamp() - int(text[:-1]) * UNITS[text[-1]]) * 1000)
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time; expected one like 2030-01-31T12:00:00, milliseconds since 1970 or an age like 2h"
        ) from None


def _span(text: str) -> int:
    """Milliseconds."""
    if text[:-1].isascii() and text[:-1].isdigit() and text[-1:] in UNITS:
        return int(text[:-1]) * UNITS[text[-1]] * 1000
    raise argparse.ArgumentTypeError(f"{text!r} is not a time span; expected one like 30s, 10m, 2h or 7d")


def source_options(options: Any) -> dict[str, str]:
    """The options of the data source that the words mean."""
    made: dict[str, str] = {}
    store = getattr(options, "store", None)
    if store is not None:
        made["path"] = store
        if getattr(options, "store_topic", None):
            made["subscribe"] = ",".join(options.store_topic)
        if getattr(options, "broker_name", None):
            made["brokerName"] = options.broker_name
    else:
        made |= client_options(options)
        if getattr(options, "topic", None):
            made["subscribe"] = ",".join(options.topic)
        if getattr(options, "pattern", None):
            made["subscribePattern"] = options.pattern
    return made | time_options(options) | dict(options.given)


def time_options(options: Any) -> dict[str, str]:
    named = {"startingTimestamp": getattr(options, "begin", None), "endingTimestamp": getattr(options, "end", None)}
    columns = {"columns": getattr(options, "columns", None)}
    return {name: str(value) for name, value in (named | columns).items() if value is not None}


def client_options(options: Any) -> dict[str, str]:
    from firearrow.cli.messages.common import credentials

    made = {"nameServer": options.name_server}
    keys = credentials(options.access_key)
    if keys is not None:
        made |= {"accessKey": keys.access_key, "secretKey": keys.secret_key}
    if options.credentials_file:
        made["credentialsFile"] = options.credentials_file
    if options.tls:
        made["tls"] = "true"
    return made
