"""The job `sql`: an ad-hoc query over topics.

Topics are tables by their names, the state of the cluster is in `admin_topics`, `admin_queues`, `admin_groups`, `admin_lag` and
`admin_clients`, and an archive is the table `archive`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from firearrow.spark.cluster import cluster_client
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.options import read_options
from firearrow.spark.pipelines.archive import read_archive
from firearrow.spark.pipelines.sources import CLIENT_OPTIONS
from firearrow.spark.read.admin_tables import TABLES

_words = re.compile(r"`([^`]+)`|([A-Za-z_%][\w%|-]*)")
_ADMIN: Final = "admin_"


def tables(
    query: str, options: Mapping[str, str], *, archive: str | None = None, topics: Iterable[str] = ()
) -> dict[str, dict[str, str]]:
    """Return the options of the data source for every table named in a query, with its `format`."""
    named = [first or second for first, second in _words.findall(query)]
    by_lower = {name.lower(): name for name in named}
    found: dict[str, dict[str, str]] = {}
    client = {name: text for name, text in options.items() if name in CLIENT_OPTIONS and name != "brokerAddressMap"}
    for table in TABLES:
        if f"{_ADMIN}{table}" in by_lower:
            found[f"{_ADMIN}{table}"] = {"format": "rocketmq_admin", "table": table, **client}
    if archive is not None:
        found["archive"] = {"format": "archive", "path": archive}
    if "path" in options:
        for topic in topics or named:
            if topic in topics or re.search(rf"(?i)\b(from|join)\s+`?{re.escape(topic)}`?(?![\w-])", query):
                found.setdefault(topic, {"format": "rocketmq", **options, "subscribe": topic})
        return found
    if "nameServer" not in options:
        if not found:
            raise SparkOptionError("no tables: give a name server, a store directory or an archive")
        return found
    existing = set(cluster_client(read_options({**options, "subscribe": "any"}).client()).topics())
    for topic in topics:
        if topic not in existing:
            raise SparkOptionError(f"the topic {topic!r} does not exist (name server {options['nameServer']})")
    for topic in sorted({*topics, *(existing & set(named))}):
        found[topic] = {"format": "rocketmq", **options, "subscribe": topic}
    return found


def query(spark: Any, text: str, options: Mapping[str, str], *, archive: str | None = None, topics: Iterable[str] = ()) -> Any:
    """Run a query and return a frame. `options` are those of the data source, for every topic."""
    for name, given in tables(text, options, archive=archive, topics=list(topics)).items():
        rest = {key: value for key, value in given.items() if key != "format"}
        if given["format"] == "archive":
            frame = read_archive(spark, given["path"])
        else:
            frame = spark.read.format(given["format"]).options(**rest).load()
        frame.createOrReplaceTempView(f"`{name}`" if re.search(r"[^\w]", name) else name)
    return spark.sql(text)
