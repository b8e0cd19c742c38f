"""A Spark driver in a process of its own that uses every feature: batch read, store scan, batch write, stream, sink.

    python story.py '{"nameServer": ..., "path": ..., "topic": ..., "directory": ..., "master": ..., "conf": {...},
                      "executors": ...}'

It writes its results to `<directory>/found.json`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

BEGAN = time.monotonic()
EXECUTORS_S = 300.0


def main(given: dict[str, Any]) -> None:
    from firearrow.spark import session

    spark = session("story", spark_master=given["master"], **given.get("conf", {}))
    spark.sparkContext.setLogLevel("ERROR")
    where, topic = {"nameServer": given["nameServer"]}, given["topic"]
    found: dict[str, Any] = {}

    live = spark.read.format("rocketmq").options(**where, subscribe=topic).load()
    live.select("queueId", "queueOffset", "tags").show(5)
    found["first rows after s"] = time.monotonic() - BEGAN
    sums = ("count(*)", "sum(length(body))", "sum(crc32(body))")
    found["read"] = list(live.selectExpr(*sums).first())
    found["seconds"] = time.monotonic() - BEGAN
    files = spark.read.format("rocketmq").options(path=given["path"], subscribe=topic, maxSplitBytes="16m").load()
    found["scanned"] = list(files.selectExpr(*sums).first())
    found["executors"] = executors(spark, given["executors"])

    small = spark.range(1000).selectExpr("cast(id AS string) AS body", "cast(id % 5 AS string) AS shardingKey")
    small.write.format("rocketmq").options(**where, topic="StoryIn").mode("append").save()
    found["batches"] = stream(spark, where, Path(given["directory"]))
    found["first batch"] = first_batch(spark, where, topic, Path(given["directory"]))
    (Path(given["directory"]) / "found.json").write_text(json.dumps(found))
    spark.stop()


def executors(spark: Any, wanted: int) -> int:
    """Return the number of executors. One that starts slowly may register after the others have done the work so far."""
    context = spark.sparkContext._jsc.sc()  # noqa: SLF001 (PySpark has no public call that lists the executors)
    deadline = time.monotonic() + EXECUTORS_S
    while (found := len(context.statusTracker().getExecutorInfos()) - 1) != wanted and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def stream(spark: Any, where: dict[str, str], directory: Path) -> list[int]:
    """Run a stream; return the rows of each micro-batch."""
    query = (
        spark.readStream.format("rocketmq")
        .options(**where, subscribe="StoryIn", startingOffsets="earliest", maxOffsetsPerTrigger="600")
        .load()
        .writeStream.format("rocketmq")
        .options(**where, topic="StoryOut", checkpointLocation=str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def first_batch(spark: Any, where: dict[str, str], topic: str, directory: Path) -> int:
    """Return the rows of the first micro-batch of a stream without limits."""
    query = (
        spark.readStream.format("rocketmq")
        .options(**where, subscribe=topic, startingOffsets="earliest")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(directory / "checkpoint-of-all"))
        .start()
    )
    while not [one for one in query.recentProgress if one.numInputRows]:
        query.awaitTermination(0.1)
    rows = next(one.numInputRows for one in query.recentProgress if one.numInputRows)
    query.stop()
    return int(rows)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
