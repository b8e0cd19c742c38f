"""The job `audit`: compares two topics, or an archive and a topic, and reports missing and duplicated messages.

Messages with equal keys are the same. The key `origin` is the original location of a message, which `transfer` and `replay` store
in their copies; for an archive and its topic it is the location of the message.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from firearrow.spark.pipelines.inputs import JobInput, key_of
from firearrow.spark.pipelines.selection import PLACE_SQL
from firearrow.spark.pipelines.storage import StorageLocation


@dataclass
class Audit:
    """Result of an audit. `missing_right` counts keys that only the left side has, and so on; `samples` has examples."""

    left: str
    right: str
    key: str
    rows_left: int = 0
    rows_right: int = 0
    keys_left: int = 0
    keys_right: int = 0
    missing_left: int = 0
    missing_right: int = 0
    doubled_left: int = 0
    doubled_right: int = 0
    without_key: int = 0
    samples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        return not (self.missing_left or self.missing_right or self.doubled_left or self.doubled_right)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "equal": self.equal}


def audit(
    spark: Any,
    left: JobInput,
    right: JobInput,
    *,
    key: str = "origin",
    right_key: str | None = None,
    samples: int = 10,
    out: str = "",
) -> Audit:
    """Compare two inputs. `out` is a directory for all differences, as Parquet."""
    from pyspark.sql import functions as sql

    one, other = _counted(spark, left, key), _counted(spark, right, right_key or key)
    both = one.withColumnsRenamed({"n": "nLeft", "place": "placeLeft"}).join(
        other.withColumnsRenamed({"n": "nRight", "place": "placeRight"}), "key", "full_outer"
    )
    both = both.fillna(0, ["nLeft", "nRight"]).withColumn("kind", sql.expr(_KIND)).cache()
    try:
        found = both.agg(*(sql.expr(text).alias(name) for name, text in _TOTALS.items())).collect()[0].asDict()
        result = Audit(left.name, right.name, key)
        for name, value in found.items():
            setattr(result, name, int(value or 0))
        differences = both.where("kind IS NOT NULL AND key IS NOT NULL").select(*_COLUMNS)
        for kind in _KINDS:
            rows = differences.where(sql.col("kind") == kind).orderBy("key").limit(samples).drop("kind").collect()
            if rows:
                result.samples[kind] = [row.asDict() for row in rows]
        if out:
            differences.write.mode("overwrite").parquet(StorageLocation(out).uri())
    finally:
        both.unpersist()
    return result


def _counted(spark: Any, side: JobInput, key: str) -> Any:
    """Count the messages of each key, with the first location."""
    from pyspark.sql import functions as sql

    columns, text = key_of(key)
    keyed = side.load(spark, columns).select(sql.expr(text).alias("key"), sql.expr(PLACE_SQL).alias("place"))
    return keyed.groupBy("key").agg(sql.count("*").alias("n"), sql.min("place").alias("place"))


_KINDS = ("missing_right", "missing_left", "doubled_left", "doubled_right")
_COLUMNS = ("kind", "key", "nLeft", "nRight", "placeLeft", "placeRight")
_KIND = """CASE WHEN nRight = 0 THEN 'missing_right' WHEN nLeft = 0 THEN 'missing_left'
                WHEN nLeft > nRight THEN 'doubled_left' WHEN nRight > nLeft THEN 'doubled_right' END"""
_TOTALS = {
    "rows_left": "sum(nLeft)",
    "rows_right": "sum(nRight)",
    "keys_left": "count_if(nLeft > 0 AND key IS NOT NULL)",
    "keys_right": "count_if(nRight > 0 AND key IS NOT NULL)",
    **{kind: f"count_if(kind = '{kind}' AND key IS NOT NULL)" for kind in _KINDS},
    "without_key": "sum(CASE WHEN key IS NULL THEN nLeft + nRight ELSE 0 END)",
}
