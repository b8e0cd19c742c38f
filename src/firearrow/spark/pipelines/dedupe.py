"""The job `dedupe`: copies topics, or an archive, without duplicates to a topic or to a new archive.

A query over keys and locations, without bodies, finds the duplicates and stores them beside the journal. Then all other messages
are copied as by `transfer` and `archive`. Of messages with the same key, the one stored first is copied. Messages without the key
are all copied.
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
from firearrow.spark.pipelines.job import Report, RunOptions, Totals, discard
from firearrow.spark.pipelines.selection import DIRECTORY, PLACE_SQL, SKIP, Selection, save_selection
from firearrow.spark.pipelines.sources import Json, MessageSource, TopicSource, open_source
from firearrow.spark.pipelines.storage import StorageLocation
from firearrow.spark.pipelines.transfer import copy, target_options


@dataclass
class Deduped:
    """Result of a run: `duplicates` in the whole range, and the totals of what this run copied."""

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
    report: Report = discard,
    stopped: Callable[[], bool] = lambda: False,
) -> Deduped:
    """Copy without duplicates; without a target, only count them.

    `within_ms`: a message is a duplicate only if it was stored this soon after one with the same key.
    """
    if to_topic is not None and out is not None:
        raise SparkOptionError("to_topic and out are mutually exclusive: give one of them")
    if to_topic is not None and checkpoint is None:
        raise SparkOptionError("writing to a topic needs a checkpoint directory, which holds the journal of the job")
    key_of(key)
    source: MessageSource = ArchiveSource(side.archive, side.options) if side.archive is not None else open_source(side.options)
    directory = checkpoint if out is None else f"{out}/{JOURNAL}"  # of the selection and its description
    if directory is None:
        return Deduped(_duplicates(spark, side, source, source.end(), key, within_ms).count(), None)
    storage = StorageLocation(directory)
    state = storage.get_json("dedupe.json")
    asked = {"key": key, "within_ms": within_ms}
    if state is None:
        end = source.end()
        save_selection(_duplicates(spark, side, source, end, key, within_ms), storage)
        state = {**asked, "end": end, "duplicates": spark.read.parquet(storage.uri(DIRECTORY)).count()}
        storage.put_json("dedupe.json", state)
    elif any(state[name] != value for name, value in asked.items()):
        raise SparkOptionError(
            f"{out or checkpoint} belongs to a job with key {state['key']} within {state['within_ms']} ms: use another directory"
        )
    report({"job": "dedupe", "event": "found", "duplicates": state["duplicates"]})
    engine, selection = SparkEngine(spark), Selection(directory, SKIP)
    run_options: RunOptions = {"until": state["end"], "report": report, "stopped": stopped}
    totals = None
    if out is not None:
        totals = write_archive(engine, source, out, job="dedupe", extra_identity=asked, selection=selection, **run_options)
    elif to_topic is not None:
        writing = write_options(target_options(side.options, to_name_server))
        totals = copy(
            engine, source, to_topic, directory, job="dedupe", writing=writing, extra_identity=asked, selection=selection,
            **run_options,
        )  # fmt: skip
    return Deduped(state["duplicates"], totals)


def _duplicates(spark: Any, side: JobInput, source: MessageSource, end: Json, key: str, within_ms: int | None) -> Any:
    """Return the locations of the duplicates up to an end."""
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
