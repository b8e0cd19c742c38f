"""What the words of `firearrow spark` start: engines, progress, results. The jobs themselves are in spark/pipelines."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from firearrow.cli.arguments import UsageError
from firearrow.cli.spark.arguments import client_options, source_options, time_options
from firearrow.cli.spark.job_context import JobContext
from firearrow.client.errors import FirearrowError
from firearrow.clock import wall_ms
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.pipelines.engine import Engine, task_error

DIFFERENT = 3


def run(options: argparse.Namespace) -> int:
    logging.basicConfig(format="firearrow: %(message)s", level=logging.WARNING, stream=sys.stderr)
    shop = JobContext(options)
    try:
        return _JOBS[options.job](options, shop)
    except UsageError:
        raise
    except KeyboardInterrupt:
        print(f"{options.parser.prog}: interrupted; run it again to go on", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it once more
        return 0
    except Exception as error:
        print(f"{options.parser.prog}: {_one_line(error)}", file=sys.stderr)
        if not isinstance(error, (FirearrowError, OSError, ValueError, RuntimeError)) and task_error(str(error)) is None:
            logging.getLogger("firearrow").debug("what happened", exc_info=error)
        return 1
    finally:
        shop.close()


def archive(options: argparse.Namespace, shop: JobContext) -> int:
    from firearrow.spark.pipelines.archive import JOURNAL, write_archive
    from firearrow.spark.pipelines.sources import open_source

    source = open_source(source_options(options), lossy=options.lossy)
    if options.dry_run:
        return _dry(shop, source, options.out, JOURNAL, options.max_offsets, f"archive to {options.out}")
    engine = shop.engine(lambda: _size(source, options.out, JOURNAL))
    done = write_archive(
        engine, source, options.out, compression=options.compression, max_offsets=options.max_offsets,
        follow_s=options.follow, report=shop.report, stopped=shop.stopped,
    )  # fmt: skip
    shop.finish(_moved(done, f"archived to {options.out}", engine), engine=engine.name, out=options.out, **asdict(done))
    return 0


def transfer(options: argparse.Namespace, shop: JobContext) -> int:
    from firearrow.spark.pipelines.sources import open_source
    from firearrow.spark.pipelines.transfer import transfer as work

    source = open_source(source_options(options))
    if options.dry_run:
        return _dry(shop, source, options.checkpoint, "", options.max_offsets, f"copy to {options.to_topic}")
    target = options.to_name_server or options.name_server
    if options.create_queues:
        _make_topic(options, target)
    engine = shop.engine(lambda: _size(source, options.checkpoint))
    done = work(
        engine, source_options(options), options.to_topic, options.checkpoint, to_name_server=target, order=options.order,
        rate=options.rate, max_offsets=options.max_offsets, follow_s=options.follow, report=shop.report, stopped=shop.stopped,
    )  # fmt: skip
    shop.finish(_moved(done, f"copied to {options.to_topic}", engine), engine=engine.name, to=options.to_topic, **asdict(done))
    return 0


def replay(options: argparse.Namespace, shop: JobContext) -> int:
    from firearrow.spark.pipelines.storage import StorageLocation
    from firearrow.spark.pipelines.transfer import replay as work
    from firearrow.spark.pipelines.transfer import replay_source, select_where

    given = client_options(options) | time_options(options) | dict(options.given)
    if options.archive is not None and options.topic:
        given["subscribe"] = ",".join(options.topic)
    source = replay_source(options.name_server, archive=options.archive, dead_letters_of=options.dead_letters, options=given)
    if options.dry_run:
        return _dry(shop, source, options.checkpoint, "", options.max_offsets, f"replay to {options.to_topic}")
    engine = shop.engine(lambda: _size(source, options.checkpoint))
    chosen = None
    if options.where:
        chosen = select_where(
            shop.spark, source, StorageLocation(options.checkpoint), options.where, given, options.archive, options.dead_letters
        )
    done = work(
        engine, options.checkpoint, name_server=options.name_server, to_topic=options.to_topic, archive=options.archive,
        dead_letters_of=options.dead_letters, options=given, selection=chosen, order=options.order, rate=options.rate,
        max_offsets=options.max_offsets, report=shop.report, stopped=shop.stopped,
    )  # fmt: skip
    shop.finish(_moved(done, f"replayed to {options.to_topic}", engine), engine=engine.name, to=options.to_topic, **asdict(done))
    return 0


def dedupe(options: argparse.Namespace, shop: JobContext) -> int:
    from firearrow.spark.pipelines.dedupe import dedupe as work
    from firearrow.spark.pipelines.inputs import JobInput

    side = JobInput(source_options(options), options.archive)
    if options.to_topic and not options.checkpoint:
        raise UsageError("--to-topic needs --checkpoint: what was planned and done is kept there")
    to_topic, out = (None, None) if options.dry_run else (options.to_topic, options.out)
    found = work(
        shop.spark, side, key=options.key, within_ms=options.within, to_topic=to_topic, out=out,
        checkpoint=None if options.dry_run else options.checkpoint, report=shop.report, stopped=shop.stopped,
    )  # fmt: skip
    if found.totals is None:
        shop.finish(f"{found.duplicates:,} duplicates by {options.key}", duplicates=found.duplicates, dry_run=options.dry_run)
        return 0
    where = to_topic or out
    shop.finish(
        f"{found.duplicates:,} duplicates by {options.key}; {found.totals.rows:,} messages copied to {where}",
        duplicates=found.duplicates, to=where, **asdict(found.totals),
    )  # fmt: skip
    return 0


def audit(options: argparse.Namespace, shop: JobContext) -> int:
    from firearrow.spark.pipelines.audit import audit as work
    from firearrow.spark.pipelines.inputs import key_of

    left, right = _side(options, options.left, None), _side(options, options.right, options.right_name_server)
    key_of(options.key), key_of(options.right_key or options.key)
    if options.dry_run:
        shop.finish(f"dry run: would compare {left.name} with {right.name} by {options.key}", left=left.name, right=right.name)
        return 0
    found = work(
        shop.spark, left, right, key=options.key, right_key=options.right_key, samples=options.samples, out=options.out or ""
    )
    if options.json:
        shop.finish("", **found.as_dict())
        return 0 if found.equal else DIFFERENT
    print(f"{left.name}: {found.rows_left:,} messages, {right.name}: {found.rows_right:,}, by {options.key}")
    if found.equal:
        shop.finish("nothing is missing, nothing is doubled")
        return 0
    kinds = {"missing_right": f"missing in {right.name}", "missing_left": f"missing in {left.name}"}
    kinds |= {"doubled_left": f"more often in {left.name}", "doubled_right": f"more often in {right.name}"}
    for kind, text in kinds.items():
        number = getattr(found, kind)
        if number:
            print(f"\n{number:,} {text}")
            shop.out.rows(found.samples.get(kind, []), ["key", "nLeft", "nRight", "placeLeft", "placeRight"])
    return DIFFERENT


def lag(options: argparse.Namespace, shop: JobContext) -> int:

    from firearrow.spark.pipelines.lag import lag as work

    given = client_options(options) | {
        name: ",".join(getattr(options, name)) for name in ("group", "topic") if getattr(options, name)
    }
    if options.dry_run:
        where = f", keep it in {options.history}" if options.history else ""
        shop.finish(f"dry run: would ask {options.name_server} for the lag of groups{where}", **given)
        return 0
    found = work(
        given, history=options.history, since_ms=wall_ms() - options.since, every_s=options.every,
        count=options.count, report=shop.report, stopped=shop.stopped,
    )  # fmt: skip
    if options.html:
        from firearrow.spark.reports.lag import lag_page

        _write_page(options.html, lag_page(found, options.name_server))
    if options.json:
        for one in found:
            print(json.dumps({"job": "lag", "event": "group", **asdict(one)}, ensure_ascii=False))
        shop.finish("", groups=len(found), lag=sum(one.lag for one in found), html=options.html)
        return 0
    columns = ["group", "topic", "lag", "in_flight", "queues", "worst_queue", "worst_lag", "consumed_a_second", "lost"]
    shop.out.rows([asdict(one) for one in found], columns)
    shop.finish(f"lag {sum(one.lag for one in found):,}" + (f"; page: {options.html}" if options.html else ""))
    return 0


def trace(options: argparse.Namespace, shop: JobContext) -> int:
    from firearrow.spark.pipelines.sources import open_source
    from firearrow.spark.pipelines.trace import trace as work

    given = client_options(options) | time_options(options) | dict(options.given)
    if options.dry_run:
        source = open_source({**given, "subscribe": options.trace_topic})
        rows = source.rows(source.begin(), source.end())
        shop.finish(f"dry run: would read {rows:,} messages of {options.trace_topic}", messages=rows)
        return 0
    found = work(shop.spark, given, trace_topic=options.trace_topic, stored=options.stored)
    if options.html:
        from firearrow.spark.reports.trace import trace_page

        _write_page(options.html, trace_page(found, options.name_server))
    if options.json:
        shop.finish("", html=options.html, **asdict(found))
        return 0
    rows_ = [{**one, **{f"{name}_ms": one[name] for name in ("p50", "p95", "p99", "max")}} for one in found.stages]
    shop.out.rows(rows_, ["stage", "topic", "group", "count", "p50_ms", "p95_ms", "p99_ms", "max_ms"])
    page = f"; page: {options.html}" if options.html else ""
    shop.finish(
        f"{found.sent:,} sent ({found.send_failed:,} failed), {found.consumed:,} consumed ({found.consume_failed:,} failed), "
        f"{found.never_consumed:,} never consumed; times in ms{page}"
    )
    return 0


def sql(options: argparse.Namespace, shop: JobContext) -> int:
    from firearrow.spark.pipelines.sql import query, tables

    given = source_options(argparse.Namespace(**{**vars(options), "topic": None}))
    if options.dry_run:
        found = tables(options.query, given, archive=options.archive, topics=options.topic)
        named = {name: {key: text for key, text in one.items() if key != "secretKey"} for name, one in found.items()}
        shop.finish(f"dry run: tables {', '.join(named) or 'none'}", tables=named)
        return 0
    frame = query(shop.spark, options.query, given, archive=options.archive, topics=options.topic)
    rows = [row.asDict(recursive=True) for row in frame.limit(options.limit + 1).collect()]
    more, rows = len(rows) > options.limit, rows[: options.limit]
    if options.json:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False, default=_plain))
    else:
        shop.out.rows([{name: _shown(value) for name, value in row.items()} for row in rows], frame.columns)
    if more:
        print(f"there are more than {options.limit:,} rows: --limit prints more of them", file=sys.stderr)
    return 0


_JOBS: dict[str, Callable[[argparse.Namespace, JobContext], int]] = {
    "archive": archive, "transfer": transfer, "replay": replay, "dedupe": dedupe, "audit": audit, "lag": lag, "trace": trace,
    "sql": sql,
}  # fmt: skip


def _dry(shop: JobContext, source: Any, location: str, name: str, most: int, what: str) -> int:
    from firearrow.spark.pipelines.dry_run import estimate

    found = estimate(source, location, name, most=most)
    again = ", after the increment that was not finished" if found["repeats_increment"] else ""
    shop.finish(
        f"dry run: would {what} {found['amount']:,} {found['unit']} (about {found['bytes'] / 1e6:,.1f} MB){again}, "
        f"{found['tasks_per_increment']} tasks in the first round",
        dry_run=True, **found,
    )  # fmt: skip
    return 0


def _size(source: Any, location: str, name: str = "") -> int:
    """About how many bytes are left to do."""
    from firearrow.spark.pipelines.dry_run import remaining_range

    start, end, _ = remaining_range(source, location, name)
    return int(source.size_bytes(start, end))


def _side(options: argparse.Namespace, text: str, name_server: str | None) -> Any:
    from firearrow.spark.pipelines.inputs import JobInput

    if "/" in text:
        return JobInput({}, text)
    given = client_options(options) | time_options(options) | dict(options.given) | {"subscribe": text}
    return JobInput(given | ({"nameServer": name_server} if name_server else {}))


def _make_topic(options: argparse.Namespace, name_server: str) -> None:
    from firearrow.admin.sync import Admin
    from firearrow.cli.messages.common import credentials

    with Admin(name_server, credentials=credentials(options.access_key), tls=options.tls) as admin:
        if options.to_topic not in admin.topic_names():
            admin.create_topic(options.to_topic, queues=options.create_queues)


def _moved(done: Any, what: str, engine: Engine) -> str:
    if not done.rows:
        return f"nothing new to be {what}"
    pace = f", {done.rows / done.seconds:,.0f} a second" if done.seconds else ""
    files = f" in {done.files:,} files" if done.files else ""
    increments = "1 round" if done.increments == 1 else f"{done.increments:,} increments"
    return f"{done.rows:,} messages {what}{files} ({increments}, {done.seconds:.1f} s{pace}, {engine.name})"


def _write_page(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _one_line(error: Exception) -> str:
    """The error of ours that Spark wrapped, if there is one."""
    found = None if isinstance(error, (SparkOptionError, FirearrowError)) else task_error(str(error))
    text = found[1] if found is not None else str(error).partition("\n\nJVM stacktrace")[0]
    return " ".join(text.split()) or type(error).__name__


def _shown(value: Any) -> Any:
    """A cell of a table: bodies as text, times as they are written."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode(errors="backslashreplace")
    return value if isinstance(value, (str, int, float, list, dict)) or value is None else str(value)


def _plain(value: Any) -> Any:
    return bytes(value).decode(errors="backslashreplace") if isinstance(value, (bytes, bytearray)) else str(value)
