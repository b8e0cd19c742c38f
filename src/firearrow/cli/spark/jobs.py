"""The execution of `firearrow spark JOB`: engine, progress and result. The jobs themselves are in firearrow.spark.pipelines."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from firearrow.cli.command import FAILURE, SUCCESS, discard_output, fail, milliseconds
from firearrow.cli.spark.commands import client_options, reader_options, source_options
from firearrow.cli.spark.job_context import JobContext, print_json
from firearrow.cli.terminal import plural
from firearrow.client.errors import FirearrowError
from firearrow.clock import wall_ms
from firearrow.escaping import log_to_stderr
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.pipelines.engine import Engine, task_error

DIFFERENCES_FOUND = 3


def run(options: SimpleNamespace) -> int:
    """Run a job and return the exit code."""
    log_to_stderr("firearrow: %(message)s", options.log_level)
    context = JobContext(options)
    try:
        return _JOBS[options.job](options, context)
    except click.UsageError:
        raise
    except KeyboardInterrupt:
        fail("interrupted; run it again to continue")
        return FAILURE
    except BrokenPipeError:
        discard_output()
        return SUCCESS
    except Exception as error:
        fail(_message(error))
        if not isinstance(error, (FirearrowError, OSError, ValueError, RuntimeError)) and task_error(str(error)) is None:
            logging.getLogger("firearrow").debug("traceback of the failure", exc_info=error)
        return FAILURE
    finally:
        context.close()


def archive(options: SimpleNamespace, context: JobContext) -> int:
    from firearrow.spark.pipelines.archive import JOURNAL, write_archive
    from firearrow.spark.pipelines.sources import open_source

    source = open_source(source_options(options), lossy=options.lossy)
    if options.dry_run:
        return _dry_run(context, source, options.out, JOURNAL, options.max_offsets, f"archive to {options.out}")
    engine = context.engine(lambda: _size(source, options.out, JOURNAL))
    done = write_archive(
        engine, source, options.out, compression=options.compression, max_offsets=options.max_offsets,
        follow_s=_seconds(options.follow), report=context.report, stopped=context.stopped,
    )  # fmt: skip
    return _finish(context, engine, done, f"archived to {options.out}", out=options.out)


def transfer(options: SimpleNamespace, context: JobContext) -> int:
    from firearrow.spark.pipelines.sources import open_source
    from firearrow.spark.pipelines.transfer import transfer as work

    source = open_source(source_options(options))
    if options.dry_run:
        return _dry_run(context, source, options.checkpoint, "", options.max_offsets, f"copy to {options.to_topic}")
    target = options.to_namesrv or options.namesrv
    if options.create_queues:
        _create_topic(options, target)
    engine = context.engine(lambda: _size(source, options.checkpoint))
    done = work(
        engine, source_options(options), options.to_topic, options.checkpoint, to_name_server=target, order=options.order,
        rate=options.rate, max_offsets=options.max_offsets, follow_s=_seconds(options.follow), report=context.report,
        stopped=context.stopped,
    )  # fmt: skip
    return _finish(context, engine, done, f"copied to {options.to_topic}", to=options.to_topic)


def replay(options: SimpleNamespace, context: JobContext) -> int:
    from firearrow.spark.pipelines.storage import StorageLocation
    from firearrow.spark.pipelines.transfer import replay as work
    from firearrow.spark.pipelines.transfer import replay_source, select_where

    given = reader_options(options)
    if options.archive is not None and options.topic:
        given["subscribe"] = ",".join(options.topic)
    source = replay_source(options.namesrv, archive=options.archive, dead_letters_of=options.dead_letters, options=given)
    if options.dry_run:
        return _dry_run(context, source, options.checkpoint, "", options.max_offsets, f"replay to {options.to_topic}")
    engine = context.engine(lambda: _size(source, options.checkpoint))
    chosen = None
    if options.where:
        place = StorageLocation(options.checkpoint)
        chosen = select_where(context.spark, source, place, options.where, given, options.archive, options.dead_letters)
    done = work(
        engine, options.checkpoint, name_server=options.namesrv, to_topic=options.to_topic, archive=options.archive,
        dead_letters_of=options.dead_letters, options=given, selection=chosen, order=options.order, rate=options.rate,
        max_offsets=options.max_offsets, report=context.report, stopped=context.stopped,
    )  # fmt: skip
    return _finish(context, engine, done, f"replayed to {options.to_topic}", to=options.to_topic)


def dedupe(options: SimpleNamespace, context: JobContext) -> int:
    from firearrow.spark.pipelines.dedupe import dedupe as work
    from firearrow.spark.pipelines.inputs import JobInput

    side = JobInput(source_options(options), options.archive)
    to_topic, out = (None, None) if options.dry_run else (options.to_topic, options.out)
    found = work(
        context.spark, side, key=options.key, within_ms=None if options.within is None else milliseconds(options.within),
        to_topic=to_topic, out=out,
        checkpoint=None if options.dry_run else options.checkpoint, report=context.report, stopped=context.stopped,
    )  # fmt: skip
    if found.totals is None:
        return context.finish(
            f"{plural(found.duplicates, 'duplicate')} by {options.key}", duplicates=found.duplicates, dry_run=options.dry_run
        )
    where = to_topic or out
    return context.finish(
        f"{plural(found.duplicates, 'duplicate')} by {options.key}; {plural(found.totals.rows, 'message')} copied to {where}",
        duplicates=found.duplicates, to=where, **asdict(found.totals),
    )  # fmt: skip


def audit(options: SimpleNamespace, context: JobContext) -> int:
    from firearrow.spark.pipelines.audit import audit as work
    from firearrow.spark.pipelines.inputs import key_of

    left, right = _input(options, options.left, None), _input(options, options.right, options.right_namesrv)
    key_of(options.key), key_of(options.right_key or options.key)
    if options.dry_run:
        return context.finish(
            f"dry run: would compare {left.name} with {right.name} by {options.key}", left=left.name, right=right.name
        )
    found = work(
        context.spark, left, right, key=options.key, right_key=options.right_key, samples=options.samples, out=options.out or ""
    )
    if context.as_json:
        context.finish("", **found.as_dict())
        return 0 if found.equal else DIFFERENCES_FOUND
    context.out.text(f"{left.name}: {plural(found.rows_left, 'message')}, {right.name}: {found.rows_right:,}, by {options.key}")
    if found.equal:
        return context.finish("no differences")
    kinds = {"missing_right": f"missing in {right.name}", "missing_left": f"missing in {left.name}"}
    kinds |= {"doubled_left": f"duplicated in {left.name}", "doubled_right": f"duplicated in {right.name}"}
    for kind, text in kinds.items():
        number = getattr(found, kind)
        if number:
            context.out.text("")
            context.out.text(f"{number:,} {text}")
            context.out.rows(found.samples.get(kind, []), ["key", "nLeft", "nRight", "placeLeft", "placeRight"])
    return DIFFERENCES_FOUND


def lag(options: SimpleNamespace, context: JobContext) -> int:
    from firearrow.spark.pipelines.lag import lag as work

    given = client_options(options) | {
        name: ",".join(getattr(options, name)) for name in ("group", "topic") if getattr(options, name)
    }
    if options.dry_run:
        where = f", keep it in {options.history}" if options.history else ""
        return context.finish(f"dry run: would ask {options.namesrv} for the lag of groups{where}", **given)
    found = work(
        given, history=options.history, since_ms=wall_ms() - milliseconds(options.since), every_s=_seconds(options.every),
        count=options.count, report=context.report, stopped=context.stopped,
    )  # fmt: skip
    if options.html:
        from firearrow.spark.reports.lag import lag_page

        Path(options.html).write_text(lag_page(found, options.namesrv), encoding="utf-8")
    if context.as_json:
        for one in found:
            print_json({"job": "lag", "event": "group", **asdict(one)})
        return context.finish("", groups=len(found), lag=sum(one.lag for one in found), html=options.html)
    columns = ["group", "topic", "lag", "in_flight", "queues", "worst_queue", "worst_lag", "consumed_a_second", "lost"]
    context.out.rows([asdict(one) for one in found], columns)
    return context.finish(f"lag {sum(one.lag for one in found):,}" + (f"; page: {options.html}" if options.html else ""))


def trace(options: SimpleNamespace, context: JobContext) -> int:
    from firearrow.spark.pipelines.sources import open_source
    from firearrow.spark.pipelines.trace import trace as work

    given = reader_options(options)
    if options.dry_run:
        source = open_source({**given, "subscribe": options.trace_topic})
        rows = source.rows(source.begin(), source.end())
        return context.finish(f"dry run: would read {rows:,} messages of {options.trace_topic}", messages=rows)
    found = work(context.spark, given, trace_topic=options.trace_topic, stored=options.stored)
    if options.html:
        from firearrow.spark.reports.trace import trace_page

        Path(options.html).write_text(trace_page(found, options.namesrv), encoding="utf-8")
    if context.as_json:
        return context.finish("", html=options.html, **asdict(found))
    rows_ = [{**one, **{f"{name}_ms": one[name] for name in ("p50", "p95", "p99", "max")}} for one in found.stages]
    context.out.rows(rows_, ["stage", "topic", "group", "count", "p50_ms", "p95_ms", "p99_ms", "max_ms"])
    page = f"; page: {options.html}" if options.html else ""
    return context.finish(
        f"{found.sent:,} sent ({found.send_failed:,} failed), {found.consumed:,} consumed ({found.consume_failed:,} failed), "
        f"{found.never_consumed:,} never consumed; times in ms{page}"
    )


def sql(options: SimpleNamespace, context: JobContext) -> int:
    from firearrow.spark.pipelines.sql import query, tables

    given = source_options(SimpleNamespace(**{**vars(options), "topic": None}))
    if options.dry_run:
        found = tables(options.query, given, archive=options.archive, topics=options.topic)
        named = {name: {key: text for key, text in one.items() if key != "secretKey"} for name, one in found.items()}
        return context.finish(f"dry run: tables {', '.join(named) or 'none'}", tables=named)
    frame = query(context.spark, options.query, given, archive=options.archive, topics=options.topic)
    rows = [row.asDict(recursive=True) for row in frame.limit(options.limit + 1).collect()]
    more, rows = len(rows) > options.limit, rows[: options.limit]
    shown = [{name: _shown(value) for name, value in row.items()} for row in rows]
    if context.as_json:
        for row in shown:
            print_json(row)
    else:
        context.out.rows(shown, frame.columns)
    if more:
        print(f"more than {options.limit:,} rows; --limit prints more", file=sys.stderr)
    return 0


_JOBS: dict[str, Callable[[SimpleNamespace, JobContext], int]] = {
    "archive": archive, "transfer": transfer, "replay": replay, "dedupe": dedupe, "audit": audit, "lag": lag, "trace": trace,
    "sql": sql,
}  # fmt: skip


def _dry_run(context: JobContext, source: Any, location: str, name: str, most: int, what: str) -> int:
    from firearrow.spark.pipelines.dry_run import estimate

    found = estimate(source, location, name, most=most)
    again = ", after the increment that was not finished" if found["repeats_increment"] else ""
    return context.finish(
        f"dry run: would {what} {found['amount']:,} {found['unit']} (about {found['bytes'] / 1e6:,.1f} MB){again}, "
        f"{found['tasks_per_increment']} tasks in the first increment",
        dry_run=True, **found,
    )  # fmt: skip


def _size(source: Any, location: str, name: str = "") -> int:
    """Return about how many bytes remain."""
    from firearrow.spark.pipelines.dry_run import remaining_range

    start, end, _ = remaining_range(source, location, name)
    return int(source.size_bytes(start, end))


def _input(options: SimpleNamespace, text: str, name_server: str | None) -> Any:
    from firearrow.spark.pipelines.inputs import JobInput

    if "/" in text:
        return JobInput({}, text)
    given = reader_options(options) | {"subscribe": text}
    return JobInput(given | ({"nameServer": name_server} if name_server else {}))


def _create_topic(options: SimpleNamespace, name_server: str) -> None:
    from firearrow.admin.sync import Admin

    with Admin(name_server, **options.security.keywords()) as admin:
        if options.to_topic not in admin.topic_names():
            admin.create_topic(options.to_topic, queues=options.create_queues)


def _finish(context: JobContext, engine: Engine, done: Any, what: str, **facts: Any) -> int:
    """Print the totals of a job that copies messages."""
    pace = f", {done.rows / done.seconds:,.0f} per second" if done.seconds else ""
    files = f" in {plural(done.files, 'file')}" if done.files else ""
    increments = plural(done.increments, "increment")
    totals = f"{plural(done.rows, 'message')} {what}{files} ({increments}, {done.seconds:.1f} s{pace}, {engine.name})"
    sentence = totals if done.rows else f"nothing new: 0 messages {what}"
    return context.finish(sentence, engine=engine.name, **facts, **asdict(done))


def _message(error: Exception) -> str:
    """Return the text of an error; of an error that Spark wrapped, that of its cause."""
    found = None if isinstance(error, (SparkOptionError, FirearrowError)) else task_error(str(error))
    text = found[1] if found is not None else str(error).partition("\n\nJVM stacktrace")[0]
    return " ".join(text.split()) or type(error).__name__


def _shown(value: Any) -> Any:
    """Return a value of a query for output: bodies as text, times as Spark writes them."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode(errors="backslashreplace")
    return value if isinstance(value, (str, int, float, list, dict)) or value is None else str(value)


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()
