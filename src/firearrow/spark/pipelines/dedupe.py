"""`dedupe`: copies topics, or an archive, without duplicates, to a topic or to an archive of its own.

First a query over keys and places, without bodies, finds the duplicates; what it finds is kept beside the journal. Then
everything but these is copied, with the same care as by `transfer` and `archive`. Of messages with one key the one that was
stored first stays. Messages without the key are all copied.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from firearrow.spark.errors import SparkOptionError
from firearrow.spark.options import write_options
from firearrow.spark.pipelines.archive import JOURNAL, write_archive
from firearrow.spark.pipelines.archive_source import ArchiveSource
from firearrow.spark.pipelines.engine import SparkEngine
from firearrow.spark.pipelines.inputs import JobInput, key_of
from firearrow.spark.pipelines.job import Report, Totals, silent
from firearrow.spark.pipelines.selection import DIRECTORY, PLACE_SQL, SKIP, Selection, save
from firearrow.spark.pipelines.sources import Json, MessageSource, TopicSource, open_source
from firearrow.spark.pipelines.storage import StorageLocation
from firearrow.spark.pipelines.transfer import copy, write_given


@dataclass
class Deduped:
    """What a run came to: `duplicates` of the whole range, and what was copied now."""

    duplicates: int
    totals: Totals | None


def dedupe(
    spark: Any,
    side: JobInput,
    *,
    key: str = "msgId",
    within_ms: int | None = None,
    to_topic: str | None = None,
    to_name_server: str | None = None,
    out: str | None = None,
    checkpoint: str | None = None,
    report: Report = silent,
    stopped: Callable[[], bool] = lambda: False,
) -> Deduped:
    """`within_ms`: only what was stored so soon after one with the same key is a duplicate. Without a target: only counts."""
    if (to_topic is not None) and (out is not None):
        raise SparkOptionError("a topic and a directory to write to were given: give one of them")
    if to_topic is not None and checkpoint is None:
        raise SparkOptionError("to write a topic once, a checkpoint directory is needed: what was planned and done is kept there")
    key_of(key)
    source: MessageSource = ArchiveSource(side.archive, side.options) if side.archive is not None else open_source(side.options)
    location = out if out is not None else checkpoint
    if location is None:
        return Deduped(_found(spark, side, source, source.end(), key, within_ms).count(), None)
    where = StorageLocation(location)
    note = f"{JOURNAL}/dedupe.json" if out is not None else "dedupe.json"
    known = where.get_json(note) if where.exists() else None
    asked = {"key": key, "within_ms": within_ms}
    if known is None:
        end = source.end()
        kept = StorageLocation(f"{where.location}/{JOURNAL}" if out is not None else where.location)
        kept.make()
        save(_found(spark, side, source, end, key, within_ms), kept)
        known = {**asked, "end": end, "duplicates": spark.read.parquet(kept.uri(DIRECTORY)).count()}
        where.put_json(note, known)
    elif any(known[name] != value for name, value in asked.items()):
        raise SparkOptionError(
            f"{where.location} belongs to a job with key {known['key']} within {known['within_ms']} ms: take another directory"
        )
    report({"job": "dedupe", "event": "found", "duplicates": known["duplicates"]})
    if to_topic is None and out is None:
        return Deduped(known["duplicates"], None)
    selection = Selection(f"{where.location}/{JOURNAL}" if out is not None else where.location, SKIP)
    engine = SparkEngine(spark)
    if out is not None:
        totals = write_archive(
            engine, source, out, job="dedupe", more=asked, selection=selection, until=known["end"], report=report, stopped=stopped
        )
    else:
        writing = write_options(write_given(side.options, to_name_server))
        totals = copy(
            engine, source, str(to_topic), str(checkpoint), job="dedupe", writing=writing, more=asked, selection=selection,
            until=known["end"], report=report, stopped=stopped,
        )  # fmt: skip
    return Deduped(known["duplicates"], totals)


def _found(spark: Any, side: JobInput, source: MessageSource, end: Json, key: str, within_ms: int | None) -> Any:
    """The places of the duplicates up to an end."""
    columns, text = key_of(key)
    side = JobInput({**side.options, **_until(source, end)}, side.archive)
    frame = side.load(spark, (*columns, "storeTimestamp")).selectExpr(f"{PLACE_SQL} AS place", f"{text} AS key", "storeTimestamp")
    order = "PARTITION BY key ORDER BY storeTimestamp, place"
    frame = frame.where("key IS NOT NULL").selectExpr("place", "storeTimestamp", f"lag(storeTimestamp) OVER ({order}) AS before")
    frame = frame.where("before IS NOT NULL")
    if within_ms is not None:
        frame = frame.where(f"timestampdiff(MILLISECOND, before, storeTimestamp) <= {int(within_ms)}")
    return frame.select("place")


def _until(source: MessageSource, end: Json) -> dict[str, str]:
    return {"endingOffsets": json.dumps(end["offsets"])} if isinstance(source, TopicSource) else {}
