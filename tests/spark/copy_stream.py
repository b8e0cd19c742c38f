"""A Spark driver in a process of its own that copies a topic to another with a stream.

    python copy_stream.py '{"nameServer": ..., "from": ..., "to": ..., "checkpoint": ..., "master": ..., "conf": {...}}'

It ends when the file `<checkpoint>.stop` exists and everything is copied. While `<checkpoint>.hold` exists, a written micro-batch
creates `<checkpoint>.reached` and waits before its commit, so that a test can kill processes between write and commit.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from firearrow.spark import session
from firearrow.spark.options import write_options
from firearrow.spark.read.datasource import RocketMQDataSource
from firearrow.spark.write.datasource import RocketMQStreamWriter

HELD_S = 120.0


def holding(checkpoint: Path) -> type[RocketMQDataSource]:
    """Return the data source with a pause before the commit."""
    hold, reached = checkpoint.with_suffix(".hold"), checkpoint.with_suffix(".reached")

    class HeldWriter(RocketMQStreamWriter):
        def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 (Spark's name)
            super().commit(messages, batchId)
            if hold.exists():
                reached.write_text(str(batchId))
                end = time.monotonic() + HELD_S
                while hold.exists() and time.monotonic() < end:
                    time.sleep(0.01)

    class HeldSource(RocketMQDataSource):
        @classmethod
        def name(cls) -> str:
            return "held"

        def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 (Spark's name)
            return HeldWriter(write_options(self.options), schema, overwrite)

    return HeldSource


def main(given: dict[str, Any]) -> None:
    spark = session("copy", spark_master=given["master"], **given.get("conf", {}))
    spark.sparkContext.setLogLevel("ERROR")
    checkpoint = Path(given["checkpoint"])
    spark.dataSource.register(holding(checkpoint))
    where = {"nameServer": given["nameServer"]}
    query = (
        spark.readStream.format("rocketmq")
        .options(**where, subscribe=given["from"], startingOffsets="earliest", **given.get("read", {}))
        .load()
        .writeStream.format("held")
        .options(**where, topic=given["to"], checkpointLocation=str(checkpoint), **given.get("write", {}))
        .start()
    )
    while not checkpoint.with_suffix(".stop").exists():
        query.awaitTermination(0.2)  # raises what the query failed with
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
