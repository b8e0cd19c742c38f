"""The words of the commands that are clients: send, consume, bench. Nothing but argparse is loaded to understand them."""

from __future__ import annotations

import argparse
import os
from datetime import UTC, datetime, timedelta
from typing import Any

CLIENT_COMMANDS = ("send", "consume", "bench")
DEFAULT_NAME_SERVER = "127.0.0.1:9876"
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def add_send(commands: Any) -> None:
    send = commands.add_parser(
        "send",
        help="send messages",
        description="Sends a message, or each line of standard input as one, and prints where each is stored.",
        epilog="example: firearrow send Orders hello --tag new --key A1 --delay 10",
        allow_abbrev=False,
    )
    send.add_argument("topic", metavar="TOPIC")
    send.add_argument(
        "body", metavar="BODY", nargs="?", help="the text to send (-: all of standard input; left out: each line of it)"
    )
    send.add_argument("--tag", metavar="TAG", help="what subscriptions select by")
    send.add_argument(
        "--key", dest="keys", metavar="KEY", action="append", default=[], help="what queries find it by; repeatable"
    )
    send.add_argument(
        "--property", dest="properties", metavar="NAME=VALUE", action="append", type=_property, default=[], help="repeatable"
    )
    when = send.add_mutually_exclusive_group()
    when.add_argument("--delay", metavar="SECONDS", type=_seconds, help="deliver it so much later")
    when.add_argument("--delay-level", metavar="LEVEL", type=_level, help="deliver it later by a level of the broker, 1 to 18")
    when.add_argument("--deliver-at", metavar="TIME", type=_moment, help="deliver it at 2030-01-31T12:00:00")
    send.add_argument("--sharding-key", metavar="KEY", help="messages of one key go to one queue")
    send.add_argument("--repeat", metavar="N", type=_count, default=1, help="send everything so often (default: %(default)s)")
    send.add_argument("--group", default="firearrow_send", help="producer group (default: %(default)s)")
    send.add_argument("--timeout", metavar="MS", type=_count, default=3000, help="for each message (default: %(default)s)")
    _add_common(send)


def add_consume(commands: Any) -> None:
    consume = commands.add_parser(
        "consume",
        help="print messages as they come",
        description="Prints the messages of a topic until --count, --wait or Ctrl-C ends it. Commits nothing without --group.",
        epilog='example: firearrow consume Orders --tags "new || paid" --from 10m --count 5',
        allow_abbrev=False,
    )
    consume.add_argument("topic", metavar="TOPIC")
    what = consume.add_mutually_exclusive_group()
    what.add_argument("--tags", metavar="EXPRESSION", default="*", help='tags joined by ||, as in "new || paid" (default: all)')
    what.add_argument("--sql", metavar="EXPRESSION", help='an SQL92 condition over properties, as in "amount > 100"')
    consume.add_argument(
        "--from",
        dest="start",
        metavar="WHERE",
        type=_start,
        default="first",
        help="first, last, a time (2030-01-31T12:00:00) or an age (30s, 10m, 2h, 1d); with --group, only where the group has no "
        "offset yet (default: %(default)s)",
    )
    consume.add_argument("--count", metavar="N", type=_count, help="end after so many messages")
    consume.add_argument("--wait", metavar="SECONDS", type=_seconds, help="end when nothing came for so long")
    consume.add_argument("--group", help="consume as a member of this group and commit what was printed")
    consume.add_argument("--body", dest="only_body", action="store_true", help="print bodies only, as they are")
    _add_common(consume)


def add_bench(commands: Any) -> None:
    bench = commands.add_parser(
        "bench",
        help="measure how fast this client sends or consumes",
        description="Sends or consumes as fast as it can and prints the rate, percentiles of the latency and the CPU time spent.",
        epilog="example: firearrow bench send --size 1024 --seconds 10",
        allow_abbrev=False,
    )
    bench.add_argument("what", choices=("send", "consume"), help="what to measure; consume needs somebody who sends")
    bench.add_argument("--topic", default="BenchmarkTest", help="default: %(default)s")
    end = bench.add_mutually_exclusive_group()
    end.add_argument("--seconds", metavar="S", type=_seconds, default=10.0, help="how long (default: %(default)g)")
    end.add_argument("--messages", metavar="N", type=_count, help="how many messages, however long that takes")
    bench.add_argument("--size", metavar="BYTES", type=_count, default=128, help="of a body (default: %(default)s)")
    bench.add_argument(
        "--in-flight",
        metavar="N",
        type=_count,
        default=1000,
        help="sends under way at once; 1: one after the other (default: %(default)s)",
    )
    bench.add_argument("--batch", metavar="N", type=_count, default=1, help="messages in one request (default: %(default)s)")
    bench.add_argument("--keys", action="store_true", help="give each message a key and a tag")
    bench.add_argument(
        "--from", dest="start", choices=("first", "last"), default="last", help="where to begin to consume (default: %(default)s)"
    )
    bench.add_argument("--threads", action="store_true", help="consume in worker threads, not on the event loop")
    bench.add_argument("--group", default="benchmark", help="default: %(default)s")
    _add_common(bench)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n",
        "--name-server",
        metavar="ADDR;ADDR",
        default=os.environ.get("NAMESRV_ADDR") or DEFAULT_NAME_SERVER,
        help=f"name servers (default: $NAMESRV_ADDR, or {DEFAULT_NAME_SERVER})",
    )
    parser.add_argument("--namespace", default="", help="of topics and groups")
    parser.add_argument(
        "--access-key", metavar="KEY", help="for brokers with access control; the secret key is in $FIREARROW_SECRET_KEY"
    )
    parser.add_argument("--tls", action="store_true", help="encrypted connections")
    parser.add_argument("--trace", action="store_true", help="tell the trace topic about every message")
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number; expected 1 or more")
    return int(text)


def _level(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a delay level; expected 1 to 18")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; expected one like 2030-01-31T12:00:00") from None


def _start(text: str) -> str | datetime:
    if text in ("first", "last"):
        return text
    if text[:-1].isascii() and text[:-1].isdigit() and text[-1:] in UNITS:
        return datetime.now(UTC) - timedelta(seconds=int(text[:-1]) * UNITS[text[-1]])
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a place to begin; expected first, last, a time like 2030-01-31T12:00:00 or an age like 10m"
        ) from None
