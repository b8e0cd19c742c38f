"""Topics as Spark tables: `spark.read.format("rocketmq")`, batch and streaming, from live brokers and store files.

    pip install 'firearrow[spark]'

Spark finds an installed package by itself. `register(spark)` is for sessions that receive the code in another way (`--py-files`,
Spark Connect). `session()` creates a session with the settings recommended for Python data sources.

Subpackages: `decode` (stored records to Arrow columns), `read` and `write` (the two sides of the data source), `pipelines`
(ready-made jobs), `reports` (HTML pages of the jobs).

May import: config, wire, store, client, admin. Only modules that Spark loads import PySpark at module level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firearrow.spark.errors import DataLossError, SparkOptionError, StoreFileError
from firearrow.spark.sessions import register, session

if TYPE_CHECKING:
    from firearrow.spark.progress_commit import commit_progress

__all__ = ["DataLossError", "SparkOptionError", "StoreFileError", "commit_progress", "register", "session"]


def __getattr__(name: str) -> Any:
    """Import `commit_progress`, which requires PySpark, when it is used."""
    if name != "commit_progress":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from firearrow.spark.progress_commit import commit_progress

    return commit_progress
