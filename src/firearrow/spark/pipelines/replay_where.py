"""Which messages a replay takes, where a condition says so: found by a query, written down before the first is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from firearrow.spark.errors import SparkOptionError
from firearrow.spark.pipelines.archive import read_archive
from firearrow.spark.pipelines.selection import KEEP, PLACE_SQL, Selection, save
from firearrow.spark.pipelines.sources import Source
from firearrow.spark.pipelines.storage import StorageLocation
from firearrow.wire.names import dlq_topic


def where(
    spark: Any,
    source: Source,
    checkpoint: StorageLocation,
    condition: str,
    options: Mapping[str, str],
    archive: str | None,
    dead_letters_of: str | None,
) -> Selection:
    """What was found is kept, so that a job that goes on means the same messages; another condition is then refused."""
    known = checkpoint.get_json("where.json") if checkpoint.exists() else None
    if known is None:
        if archive is not None:
            frame = read_archive(spark, archive)
        else:
            end = {"endingOffsets": json.dumps(source.end()["offsets"])}
            given = {**options, **end, "subscribe": dlq_topic(str(dead_letters_of))}
            frame = spark.read.format("rocketmq").options(**given).load()
        checkpoint.make()
        save(frame.where(condition).selectExpr(f"{PLACE_SQL} AS place"), checkpoint)
        checkpoint.put_json("where.json", {"where": condition})
    elif known["where"] != condition:
        raise SparkOptionError(
            f"{checkpoint.location} belongs to a job where {known['where']!r}, not {condition!r}: take another directory"
        )
    return Selection(checkpoint.location, KEEP)
