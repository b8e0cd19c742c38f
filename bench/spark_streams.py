"""Duration of micro-batches, for bench/spark.py: streams with few rows per batch into the `noop` sink."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.process import BenchError

ROCKETMQ = "rocketmq"
RATE = "rate-micro-batch"
ROWS = 20  # of a micro-batch
WARM_UP, MEASURED = 15, 40  # micro-batches
PATIENCE_S = 120.0


def trigger_ms(spark: Any, kind: str, name_server: str, topic: str, checkpoint: Path) -> float:
    """Return the median duration of consecutive triggers, as reported by Spark."""
    source = spark.readStream.format(kind)
    if kind == ROCKETMQ:
        source = source.option("nameServer", name_server).option("subscribe", topic).option("startingOffsets", "earliest")
        source = source.option("maxOffsetsPerTrigger", ROWS)
    else:
        source = source.option("rowsPerBatch", ROWS)
    query = source.load().writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    taken: dict[int, int] = {}
    deadline = time.monotonic() + PATIENCE_S
    try:
        while len(taken) < WARM_UP + MEASURED:
            if not query.isActive or time.monotonic() > deadline:
                raise BenchError(
                    f"the stream of {kind} did {len(taken)} micro-batches in {PATIENCE_S:.0f} s: {query.exception()}"
                )
            for progress in query.recentProgress:
                if progress["numInputRows"]:
                    taken[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
            time.sleep(0.2)
    finally:
        query.stop()
    return float(median(taken[number] for number in sorted(taken)[WARM_UP:]))
