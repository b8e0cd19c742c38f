"""Inputs of jobs over frames, and keys by which they identify messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from firearrow.spark.errors import SparkOptionError, suggest
from firearrow.spark.pipelines.archive import read_archive
from firearrow.spark.pipelines.selection import COLUMNS, PLACE_SQL
from firearrow.spark.write.message_builder import SPARK_ID

KEYS: Final = {
    "origin": (("properties",), f"coalesce(properties['{SPARK_ID}'], {PLACE_SQL})"),
    "place": ((), PLACE_SQL),
    "msgId": (("msgId",), "msgId"),
    "keys": (("keys",), "keys"),
    "body": (("body",), "sha2(body, 256)"),
}
"""Columns needed by each key, in addition to those of the location, and its SQL expression."""
_PROPERTY: Final = "property:"


@dataclass(frozen=True, slots=True)
class JobInput:
    """Messages of topics or a store directory (`options` of the data source), or of an archive."""

    options: Mapping[str, str]
    archive: str | None = None

    @property
    def name(self) -> str:
        found = self.archive or self.options.get("subscribe") or self.options.get("subscribePattern") or self.options.get("path")
        return str(found)

    def load(self, spark: Any, columns: Iterable[str]) -> Any:
        """Return a frame with these columns and those of the message location."""
        wanted = list(dict.fromkeys((*COLUMNS, *columns)))
        if self.archive is None:
            given = {name: text for name, text in self.options.items() if name != "columns"}
            return spark.read.format("rocketmq").options(**given).option("columns", ",".join(wanted)).load()
        frame = read_archive(spark, self.archive)
        topics = self.options.get("subscribe")
        if topics:
            frame = frame.where(frame.topic.isin([topic.strip() for topic in topics.split(",")]))
        return frame.select(*wanted)


def key_of(name: str) -> tuple[tuple[str, ...], str]:
    """Return the columns and the SQL expression of a key. SparkOptionError for an unknown key."""
    if name.startswith(_PROPERTY) and len(name) > len(_PROPERTY):
        text = name.removeprefix(_PROPERTY).replace("\\", "\\\\").replace("'", "\\'")
        return ("properties",), f"properties['{text}']"
    if name in KEYS:
        return KEYS[name]
    expected = f"expected {', '.join(KEYS)} or property:NAME"
    raise SparkOptionError(f"unknown key {name!r}; {suggest(name, KEYS, expected)}")
