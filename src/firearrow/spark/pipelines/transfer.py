"""The jobs `transfer` and `replay`: copy topics, an archive or dead letters to a topic, each message once and in order.

`transfer` relieves a backlog by copying to a topic with more queues. `replay` sends archived messages or dead letters again. Both
run in increments (`job.py`, `copy_task.py`); the journal is the checkpoint directory.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any, Final, Unpack

from firearrow.spark.cluster import cluster_client
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.options import DataSourceOptions, write_options
from firearrow.spark.pipelines.archive import read_archive
from firearrow.spark.pipelines.archive_source import ArchiveSource
from firearrow.spark.pipelines.copy_task import ORDERS, ORIGIN, CopyTask, copy_parts
from firearrow.spark.pipelines.engine import Engine
from firearrow.spark.pipelines.job import IncrementalJob, RunOptions, Totals
from firearrow.spark.pipelines.journal import Journal
from firearrow.spark.pipelines.selection import KEEP, PLACE_SQL, Selection, save_selection
from firearrow.spark.pipelines.sources import CLIENT_OPTIONS, Json, MessageSource, TopicSource, distribute, open_source
from firearrow.spark.pipelines.storage import StorageLocation
from firearrow.wire.names import dlq_topic

MAX_OFFSETS: Final = 200_000  # messages per increment, which are sent again, and recognised, after a kill


def transfer(
    engine: Engine,
    options: Mapping[str, str],
    to_topic: str,
    checkpoint: str,
    *,
    to_name_server: str | None = None,
    order: str = "key",
    **run_options: Unpack[RunOptions],
) -> Totals:
    """Copy topics to another one. `options` are those of the data source; the target must exist.

    A second run with the same checkpoint resumes where the first stopped.
    """
    source = open_source(options)
    given = target_options(options, to_name_server)
    same_cluster = isinstance(source, TopicSource) and to_name_server in (None, options.get("nameServer"))
    if same_cluster and to_topic in (source.options["subscribe"] or ()):
        raise SparkOptionError(f"{to_topic!r} would be copied to itself: name another target")
    return copy(engine, source, to_topic, checkpoint, job="transfer", writing=write_options(given), order=order, **run_options)


def replay(
    engine: Engine,
    checkpoint: str,
    *,
    name_server: str,
    to_topic: str,
    archive: str | None = None,
    dead_letters_of: str | None = None,
    options: Mapping[str, str] | None = None,
    selection: Selection | None = None,
    order: str = "key",
    **run_options: Unpack[RunOptions],
) -> Totals:
    """Send an archive, or the dead letters of a group, to `to_topic`; `origin` is the original topic of each dead letter."""
    source = replay_source(name_server, archive=archive, dead_letters_of=dead_letters_of, options=options)
    if to_topic == ORIGIN and dead_letters_of is None:
        raise SparkOptionError("to_topic origin is for dead letters only: name the topic to replay to")
    writing = write_options(target_options(options or {}, name_server))
    return copy(
        engine, source, to_topic, checkpoint, job="replay", writing=writing, order=order, selection=selection, **run_options
    )


def replay_source(
    name_server: str,
    *,
    archive: str | None = None,
    dead_letters_of: str | None = None,
    options: Mapping[str, str] | None = None,
) -> MessageSource:
    """Create the source of a replay. SparkOptionError unless exactly one input is given."""
    if (archive is None) == (dead_letters_of is None):
        raise SparkOptionError("nothing to replay: give either an archive or the group of the dead letters")
    if archive is not None:
        return ArchiveSource(archive, options or {})
    return TopicSource({"nameServer": name_server, **(options or {}), "subscribe": dlq_topic(str(dead_letters_of))})


def select_where(
    spark: Any,
    source: MessageSource,
    checkpoint: StorageLocation,
    condition: str,
    options: Mapping[str, str],
    archive: str | None,
    dead_letters_of: str | None,
) -> Selection:
    """Select the messages that match a condition. The result is stored, so that a resumed job copies the same messages."""
    known = checkpoint.get_json("where.json")
    if known is None:
        if archive is not None:
            frame = read_archive(spark, archive)
        else:
            end = {"endingOffsets": json.dumps(source.end()["offsets"])}
            given = {**options, **end, "subscribe": dlq_topic(str(dead_letters_of))}
            frame = spark.read.format("rocketmq").options(**given).load()
        save_selection(frame.where(condition).selectExpr(f"{PLACE_SQL} AS place"), checkpoint)
        checkpoint.put_json("where.json", {"where": condition})
    elif known["where"] != condition:
        raise SparkOptionError(
            f"{checkpoint.location} belongs to a job where {known['where']!r}, not {condition!r}: use another directory"
        )
    return Selection(checkpoint.location, KEEP)


def copy(
    engine: Engine,
    source: MessageSource,
    target: str,
    checkpoint: str,
    *,
    job: str,
    writing: DataSourceOptions,
    extra_identity: Json | None = None,
    order: str = "key",
    selection: Selection | None = None,
    **run_options: Unpack[RunOptions],
) -> Totals:
    if order not in ORDERS:
        raise SparkOptionError(f"order is {order!r}, expected one of {', '.join(ORDERS)}")
    rate = run_options.get("rate")
    if rate is not None and rate <= 0:
        raise SparkOptionError(f"rate is {rate}, expected a positive number of messages per second")
    if order == "queue" and target == ORIGIN:
        raise SparkOptionError("order queue needs one topic to send to: use order key, or name the topic")
    if target != ORIGIN:
        cluster_client(writing.client()).write_queues(target)
    with Journal(StorageLocation(checkpoint)) as journal:
        known = journal.begin({
            "job": job, "to": target, "order": order, **source.identity(), **(extra_identity or {}),
            "_writer": f"{job}-{uuid.uuid4().hex}",
        })  # fmt: skip

        def work(number: int, plan: Json) -> Json:
            groups = distribute(source.ordered_parts(plan), engine.parallelism)
            tasks = [
                CopyTask(tuple(group), source.options, writing, target, order, known["_writer"], number, selection)
                for group in groups
            ]
            results = engine.run(tasks, copy_parts)
            return {name: sum(result[name] for result in results) for name in ("rows", "bytes")}

        run_options_with_default: RunOptions = {"max_offsets": MAX_OFFSETS, **run_options}
        return IncrementalJob(journal, source, job, work, keep=False, **run_options_with_default).run()


def target_options(options: Mapping[str, str], name_server: str | None) -> dict[str, str]:
    """Return the options for writing: the client options of the source, and `name_server` instead of the source's.

    Jobs do not create topics: a misspelt target must fail.
    """
    given = {name: text for name, text in options.items() if name in CLIENT_OPTIONS} | {"createTopic": "false"}
    if name_server is not None:
        given["nameServer"] = name_server
    if "nameServer" not in given:
        raise SparkOptionError("the name server of the target is missing")
    return given
